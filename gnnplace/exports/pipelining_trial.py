"""The trial of a split_spec: PyTorch's own tracer cuts the module, and the stages run on its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import SymInt, Tensor, autograd, enable_grad, nn, ones
from torch.distributed.pipelining import Pipe, SplitPoint, pipeline
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from gnnplace.exports.lent import lent
from gnnplace.frontends.torch.inference import evaluating
from gnnplace.frontends.torch.inputs import ExampleInputs
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.runtimes.refusal import Fault, TrialResult, error_line, listed

Call = tuple[tuple[Any, ...], dict[str, Any]]


def try_stages(step: TorchStep | TorchInference, first: Sequence[str]) -> TrialResult:
    """The result of cutting the step's module before the `first` module of each later stage. The module is restored."""
    try:
        with lent(step) as inputs, Recurrences():
            if isinstance(step, TorchStep):
                return _cut(step, inputs, first)
            with evaluating(step.module):
                return _cut(step, inputs, first)
    except Exception as error:  # the module's code, or PyTorch's tracer
        return _refused(error_line(error))


def _refused(reason: str) -> TrialResult:
    return TrialResult(Fault(reason, ""))


def _cut(step: TorchStep | TorchInference, inputs: Sequence[Tensor], first: Sequence[str]) -> TrialResult:
    """Why PyTorch can't run the module as these stages, or which of them it can't divide."""
    calls, trains = _calls(step, inputs), isinstance(step, TorchStep)
    if len(calls) != 1:
        return _refused(
            f"a pipeline runs the module's own forward pass once a micro-batch, and the step calls it {len(calls)} "
            "times"
        )
    positional, named = calls[0]
    if reason := _unfit((positional, named)):
        return _refused(reason)
    spec = dict.fromkeys(first, SplitPoint.BEGINNING)
    pipe = pipeline(step.module, mb_args=positional, mb_kwargs=named, split_spec=spec)
    if reason := _wrong_cut(pipe, len(first) + 1, trains):
        return _refused(reason)
    received = _received(pipe, (positional, named))
    for stage, tensors in enumerate(received):
        if stage and (apart := [each for each in tensors if not each.is_contiguous()]):
            sizes, strides = [*apart[0].shape], [*apart[0].stride()]
            return _refused(f"only contiguous tensors are sent, and stage {stage} reads one of {sizes} by {strides}")
    views = (stage for stage, tensors in enumerate(received) if stage and trains and _sends_views(pipe, stage, tensors))
    return TrialResult(undivided=tuple(views))


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


def _received(pipe: Pipe, call: Call) -> list[list[Tensor]]:
    """The tensors that each stage receives, of a call's arguments."""
    received: list[list[Tensor]] = [[] for _ in range(pipe.num_stages)]

    def note(stage: int, _: nn.Module, tensors: tuple[Any, ...]) -> None:
        received[stage] = pytree.tree_leaves(tensors)

    noting = [
        pipe.get_stage_module(stage).register_forward_pre_hook(partial(note, stage)) for stage in range(pipe.num_stages)
    ]
    positional, named = call
    pipe(*positional, **named)
    for each in noting:
        each.remove()
    return received


def _sends_views(pipe: Pipe, stage: int, received: Sequence[Tensor]) -> bool:
    """Whether gradients of what a stage receives, computed by themselves, are no contiguous tensors.

    PyTorch (2.13) sends those as they are. With the gradients of weights they are copied.
    """
    leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in received]
    with enable_grad():
        outputs = [each for each in pytree.tree_leaves(pipe.get_stage_module(stage)(*leaves)) if each.requires_grad]
        inputs = [each for each in leaves if each.requires_grad]
        gradients = autograd.grad(outputs, inputs, [ones(each.shape) for each in outputs], allow_unused=True)
    return any(each is not None and not each.is_contiguous() for each in gradients)


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
