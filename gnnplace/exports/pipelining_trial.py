"""The trial of a split_spec: PyTorch's own tracer cuts the module, and the stages run on its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import SymInt, Tensor, nn
from torch.distributed.pipelining import Pipe, SplitPoint, pipeline
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from gnnplace.exports.lent import lent
from gnnplace.exports.refusal import Fault, TrialResult, error_line, listed
from gnnplace.frontends.torch.inference import evaluating
from gnnplace.frontends.torch.inputs import ExampleInputs
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.step import TorchInference, TorchStep

Call = tuple[tuple[Any, ...], dict[str, Any]]


def try_stages(step: TorchStep | TorchInference, first: Sequence[str]) -> TrialResult:
    """The result of cutting the step's module before the `first` module of each later stage. The module is restored."""
    try:
        with lent(step) as inputs, Recurrences():
            if isinstance(step, TorchStep):
                reason = _refusal(step, inputs, first)
            else:
                with evaluating(step.module):
                    reason = _refusal(step, inputs, first)
    except Exception as error:  # the module's code, or PyTorch's tracer
        reason = error_line(error)
    return TrialResult() if reason is None else TrialResult(Fault(reason, ""))


def _refusal(step: TorchStep | TorchInference, inputs: Sequence[Tensor], first: Sequence[str]) -> str | None:
    """Why PyTorch can't run the module as these stages; None if it can."""
    calls = _calls(step, inputs)
    if len(calls) != 1:
        return (
            f"a pipeline runs the module's own forward pass once a micro-batch, and the step calls it {len(calls)} "
            "times"
        )
    positional, named = calls[0]
    if reason := _unfit((positional, named)):
        return reason
    spec = dict.fromkeys(first, SplitPoint.BEGINNING)
    pipe = pipeline(step.module, mb_args=positional, mb_kwargs=named, split_spec=spec)
    if reason := _wrong_cut(pipe, len(first) + 1, trains=isinstance(step, TorchStep)):
        return reason
    return _unsent(pipe, (positional, named))


def _calls(step: TorchStep | TorchInference, inputs: Sequence[Tensor]) -> list[Call]:
    """The arguments of each call of the module in a step."""
    calls: list[Call] = []

    def note(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append((positional, named))

    noting = step.module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        if isinstance(step, TorchStep):
            step.loss_of(step.module, inputs)
        else:
            positional, named = ExampleInputs(step.inputs).call(inputs)
            step.module(*positional, **named)
    finally:
        noting.remove()
    return calls


def _unfit(call: Call) -> str | None:
    """Why a schedule can't cut a call's arguments into micro-batches; None if it can."""
    strange = [
        type(leaf).__name__
        for leaf in pytree.tree_leaves(call, is_leaf=lambda leaf: leaf is None)
        if not isinstance(leaf, Tensor)
    ]
    if strange:
        return f"PyTorch gives a stage tensors alone, and the module is called with {listed(strange)}"
    rows = list(dict.fromkeys(str(tensor.size(0)) if tensor.dim() else "no" for tensor in pytree.tree_leaves(call)))
    return f"inputs are cut along their first dimension, and they have {listed(rows)} rows" if len(rows) > 1 else None


def _wrong_cut(pipe: Pipe, stages: int, trains: bool) -> str | None:
    """What PyTorch refuses in the stages that it cut the module into, or would run wrong; None if there is nothing."""
    if pipe.num_stages != stages:
        return (
            f"it is cut into {pipe.num_stages} stages, not {stages}: some begin with modules that are never "
            "called, or with none that is"
        )
    if varying := [stage for stage in range(1, stages) if _reads_unknown_size(pipe.get_stage_module(stage))]:
        return f"stages receive tensors of fixed sizes, and stage {varying[0]} reads one whose size depends on values"
    for node in pipe.split_gm.graph.nodes:
        producer = 0 if node.op == "placeholder" else _stage(node)
        readers = [stage for user in node.users if (stage := _stage(user)) is not None]
        if node.op == "placeholder" and any(readers):
            return f"the first stage alone takes inputs, and stage {max(readers)} reads {node.target}"
        if trains and producer is not None and max(readers, default=0) > producer + 1:
            return (
                f"a gradient goes to the stage before alone, and stage {max(readers)} reads what stage {producer} makes"
            )
    return None


def _unsent(pipe: Pipe, call: Call) -> str | None:
    """Why what a stage makes of a call's arguments can't be sent to the next; None if it can."""
    apart = list[str]()

    def note(stage: int, _: nn.Module, received: tuple[Any, ...]) -> None:
        for each in pytree.tree_leaves(received):
            if not each.is_contiguous():
                sizes, strides = [*each.shape], [*each.stride()]
                apart.append(f"only contiguous tensors are sent, and stage {stage} reads one of {sizes} by {strides}")

    for stage in range(1, pipe.num_stages):
        pipe.get_stage_module(stage).register_forward_pre_hook(partial(note, stage))
    positional, named = call
    pipe(*positional, **named)
    return apart[0] if apart else None


def _reads_unknown_size(part: nn.Module) -> bool:
    """Whether a stage reads a size that depends on values, or a tensor of such a size."""
    assert isinstance(part, GraphModule)
    read = [node.meta["val"] for node in part.graph.nodes if node.op == "placeholder"]
    sizes = [tuple(value.size()) if isinstance(value, Tensor) else (value,) for value in read]
    return any(isinstance(size, SymInt) for size in chain.from_iterable(sizes))


def _stage(node: Node) -> int | None:
    """The number of the stage that a node calls or selects an output of."""
    if node.op == "call_module":
        return int(str(node.target).rpartition("_")[2])
    source = node.args[0] if node.op == "call_function" and node.args else None
    return _stage(source) if isinstance(source, Node) and source.op != "placeholder" else None
