"""A split_spec tried before it is written: PyTorch's own tracer cuts the
module, and each stage gets what its schedule would give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.pipelining import Pipe, SplitPoint, pipeline
from torch.fx import Node
from torch.utils import _pytree as pytree

from gnnplace.exports.lent import lent
from gnnplace.exports.refusal import MOST_CHARACTERS, Fault, Tried, listed
from gnnplace.frontends.torch.inference import evaluating
from gnnplace.frontends.torch.inputs import ExampleInputs
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import CompositeLstm, fake

Call = tuple[tuple[Any, ...], dict[str, Any]]


def pipelined(step: TorchStep | TorchInference, first: Sequence[str]) -> Tried:
    """What came of cutting the step's module before the calls of some modules. The module is left as it was."""
    try:
        with lent(step.module), CompositeLstm():
            if isinstance(step, TorchStep):
                return Tried(_fault(step, first))
            with evaluating(step.module):
                return Tried(_fault(step, first))
    except Exception as error:  # of the module's code, or of PyTorch's tracer
        return Tried(Fault(" ".join(f"{type(error).__name__}: {error}".split())[:MOST_CHARACTERS], ""))


def _fault(step: TorchStep | TorchInference, first: Sequence[str]) -> Fault | None:
    calls = _calls(step)
    if len(calls) != 1:
        return Fault(
            f"a pipeline runs the module's own forward pass once a micro-batch, and the step calls it {len(calls)} "
            "times",
            "",
        )
    positional, named = calls[0]
    if said := _unfit((positional, named)):
        return Fault(said, "")
    spec = dict.fromkeys(first, SplitPoint.BEGINNING)
    pipe = pipeline(step.module, mb_args=positional, mb_kwargs=named, split_spec=spec)
    said = _cut(pipe, len(first) + 1, trains=isinstance(step, TorchStep))
    if said is None:
        pipe.get_stage_module(0)(*positional, **named)
    return None if said is None else Fault(said, "")


def _calls(step: TorchStep | TorchInference) -> list[Call]:
    """What the step calls its module with, each time."""
    calls: list[Call] = []

    def note(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append((positional, named))

    inputs = ExampleInputs(step.inputs)
    tensors = [fake(tensor) for tensor in inputs.tensors]
    noting = step.module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        if isinstance(step, TorchStep):
            step.loss_of(step.module, tensors)
        else:
            positional, named = inputs.call(tensors)
            step.module(*positional, **named)
    finally:
        noting.remove()
    return calls


def _unfit(call: Call) -> str | None:
    """What of a call's arguments a schedule can't cut into micro-batches."""
    strange = [
        type(leaf).__name__
        for leaf in pytree.tree_leaves(call, is_leaf=lambda leaf: leaf is None)
        if not isinstance(leaf, Tensor)
    ]
    if strange:
        return f"PyTorch gives a stage tensors alone, and the module is called with {listed(strange)}"
    rows = list(dict.fromkeys(str(tensor.size(0)) if tensor.dim() else "no" for tensor in pytree.tree_leaves(call)))
    return f"inputs are cut along their first dimension, and they have {listed(rows)} rows" if len(rows) > 1 else None


def _cut(pipe: Pipe, stages: int, trains: bool) -> str | None:
    """What PyTorch refuses of the stages that a module was cut into, or runs wrong."""
    if pipe.num_stages != stages:
        return (
            f"it is cut into {pipe.num_stages} stages, not {stages}: some begin with modules that are never "
            "called, or with none that is"
        )
    for node in pipe.split_gm.graph.nodes:
        made = 0 if node.op == "placeholder" else _stage(node)
        readers = [stage for user in node.users if (stage := _stage(user)) is not None]
        if node.op == "placeholder" and any(readers):
            return f"the first stage alone takes inputs, and stage {max(readers)} reads {node.target}"
        if trains and made is not None and max(readers, default=0) > made + 1:
            return f"a gradient goes to the stage before alone, and stage {max(readers)} reads what stage {made} makes"
    return None


def _stage(node: Node) -> int | None:
    """The number of the stage that a node calls, or takes an output of."""
    if node.op == "call_module":
        return int(str(node.target).rpartition("_")[2])
    source = node.args[0] if node.op == "call_function" and node.args else None
    return _stage(source) if isinstance(source, Node) and source.op != "placeholder" else None
