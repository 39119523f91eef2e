"""A batch of example inputs, split along its dimension into micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.inputs import ExampleInputs, Inputs
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.micro_batches import check_number, micro_batches


class SplitBatch:
    """Inputs for a `number` of micro-batches of equal size.

    Tensors are split along `batch_dim`: one dimension for all, or one for each tensor. All micro-batches read scalars
    and the tensors named in `shared` (`input_0` is the first) whole. Raises ValueError for tensors whose sizes along it
    differ, for a batch that the micro-batches don't divide, for a dimension that a tensor has not, and for a name of no
    tensor.

    >>> import torch
    >>> batch = SplitBatch((torch.zeros(8, 4), {"scale": torch.ones(3)}), 4, ["input_1"])
    >>> [part.shape for part in batch.split(batch.tensors)[3]]
    [torch.Size([2, 4]), torch.Size([3])]
    >>> SplitBatch((torch.zeros(10, 8), torch.zeros(8)), 4, batch_dim=(1, 0)).micro_batch[0].shape  # time comes first
    torch.Size([10, 2])
    """

    def __init__(
        self, inputs: Inputs, number: int, shared: Sequence[str] = (), batch_dim: int | Sequence[int] = 0
    ) -> None:
        check_number(number)
        self._inputs, self.number, self._example = inputs, number, ExampleInputs(inputs)
        self.tensors = self._example.tensors
        names = [f"input_{number}" for number in range(len(self.tensors))]
        if isinstance(shared, str) or not isinstance(shared, Sequence):
            raise ValueError(f"shared: {shared!r} is no sequence of names; give a single input as ({shared!r},)")
        if unknown := [name for name in shared if name not in names]:
            raise ValueError(
                f"shared: {unknown[0]!r} is no tensor of the inputs; those are {', '.join(names) or 'none'}"
            )
        self.shared, pairs = tuple(shared), zip(names, self.tensors, strict=True)
        self._splits = [name not in shared and tensor.dim() > 0 for name, tensor in pairs]
        self._dims = _dims(batch_dim, len(names))
        if number > 1:
            self._check_rows()

    @property
    def micro_batch(self) -> Inputs:
        """The inputs of the first micro-batch."""
        if self.number == 1:
            return self._inputs
        parts = zip(self.tensors, self.split(self.tensors)[0], strict=True)
        leaves = [part.detach().requires_grad_(tensor.requires_grad) for tensor, part in parts]
        positional, named = self._example.call(leaves)
        return named if isinstance(self._inputs, Mapping) else positional

    def split(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors of each micro-batch: views of `tensors`, which are those of a batch."""
        parts = [
            tensor.tensor_split(self.number, dim) if splits else [tensor] * self.number
            for tensor, splits, dim in zip(tensors, self._splits, self._dims, strict=True)
        ]
        return [[part[number] for part in parts] for number in range(self.number)]

    def named(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The tensors of all micro-batches by the names that they have in a step: `input_0@3`, whole ones `input_1`."""
        return {
            f"input_{number}{tag}": part
            for copy, parts in enumerate(self.split(tensors))
            for number, part in enumerate(parts)
            for tag in ("", f"@{copy}")
        }

    def gradient(self, number: int, parts: Sequence[Tensor]) -> Tensor:
        """The gradient of one of `tensors`, from that of each micro-batch: joined or, of a whole tensor, summed."""
        first, *others = parts
        if self._splits[number] and others:
            return torch.cat([first, *(part.to(first.device) for part in others)], self._dims[number])
        return sum((part.to(first.device) for part in others), first)

    def step(self, graph: ComputationGraph) -> ComputationGraph:
        """The graph of all micro-batches, from that of one."""
        return micro_batches(graph, self.number, shared=self.shared)

    def _check_rows(self) -> None:
        leaves = pytree.tree_leaves(self._inputs, is_leaf=lambda leaf: isinstance(leaf, PackedSequence))
        if any(isinstance(leaf, PackedSequence) for leaf in leaves):
            raise ValueError(
                "inputs: a packed sequence has no batch dimension to split; give a padded tensor and lengths"
            )
        split = [number for number, splits in enumerate(self._splits) if splits]
        if not split:
            raise ValueError("inputs: no tensor has a batch dimension, so there is nothing to split into micro-batches")
        shapes = {number: list(self.tensors[number].shape) for number in split}
        for number, shape in shapes.items():
            if self._dims[number] >= len(shape):
                raise ValueError(f"batch_dim: input_{number} of shape {shape} has no dimension {self._dims[number]}")
        sizes = {number: shape[self._dims[number]] for number, shape in shapes.items()}
        ((rows, _),) = Counter(sizes.values()).most_common(1)
        for number, size in sizes.items():
            if size != rows:
                raise ValueError(
                    f"inputs: input_{number} of shape {shapes[number]} has {size} rows along dimension "
                    f"{self._dims[number]}, not the {rows} of the batch; name that of the batch (batch_dim=1) or, if "
                    f'all micro-batches read it whole, give shared=("input_{number}",)'
                )
        if rows % self.number:
            raise ValueError(f"micro_batches: {self.number} don't divide the {rows} rows of the batch")


def _dims(batch_dim: int | Sequence[int], tensors: int) -> list[int]:
    """The dimension of the batch in each tensor."""
    dims = [batch_dim] * tensors if isinstance(batch_dim, int) else list(batch_dim)
    if isinstance(batch_dim, bool) or any(isinstance(dim, bool) or not isinstance(dim, int) or dim < 0 for dim in dims):
        raise ValueError(f"batch_dim: {batch_dim!r} is no dimension, nor one for each tensor; integers of at least 0")
    if len(dims) != tensors:
        raise ValueError(f"batch_dim: {batch_dim!r} has {len(dims)} dimensions, and the inputs have {tensors} tensors")
    return dims
