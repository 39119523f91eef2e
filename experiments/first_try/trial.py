"""One input tried: plain PyTorch or ONNX Runtime runs it, then it is placed, then bytes and FLOPs are compared."""

from __future__ import annotations

import logging
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import gnnplace as gp
from experiments.first_try.cases import Case, Kind, OnnxCase, Source, TorchCase
from experiments.first_try.plain import Measured, flops, persistent_bytes
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.frontends.torch.known_values import Sizes
from gnnplace.graph import ComputationGraph

OF_EXAMPLE, OF_RUN, NO_LAYER_DROP = "sizes of the example", "sizes of one run", "no LayerDrop"
OPTIONS = {'sizes="example"': OF_EXAMPLE, 'sizes="run"': OF_RUN, "layerdrop=0": NO_LAYER_DROP}  # by what a refusal says of it
PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight", "attention")
TOLERANCE = 0.01
NAMES = ("gpu0", "gpu1")
MACHINE = Cluster(
    "two GPUs",
    (Device("cpu", "cpu", 2**37, 10**12, 10**11), *(Device(name, "gpu", 2**36, 10**13, 10**12) for name in NAMES)),
    tuple(Link(a, b, 10**10) for a in ("cpu", *NAMES) for b in ("cpu", *NAMES) if a != b),
)


class Outcome(NamedTuple):
    """`placed`, `refused`, `wrong`, `crashed`, `hung` or `excluded`, and why; the options with which it is placed."""

    word: str
    why: str = ""


def tried(source: Source, name: str, kind: Kind, ran: Callable[[], None] = lambda: None) -> Outcome:
    """The outcome of an input; calls `ran` once plain PyTorch or ONNX Runtime has run it."""
    try:
        kept = persistent_bytes(_built(source, name, kind), kind)
        case = _built(source, name, kind)
    except Exception as error:  # the framework or the network raises anything
        return Outcome("excluded", line(error))
    ran()
    try:
        measured = Measured(kept, flops(_built(source, name, kind), kind))
    except Exception as error:
        return Outcome("crashed", f"the counter: {line(error)}")
    try:
        options, graph = _placed_with_advice(source, name, kind, case)
        if NO_LAYER_DROP in options:
            kept, counted = (of(_built(source, name, kind, options), kind) for of in (persistent_bytes, flops))
            measured = Measured(kept, counted)
    except ValueError as error:
        said = str(error)
        return Outcome("refused", line(error)) if said.count("\n") == 0 else Outcome("crashed", f"lines: {line(error)}")
    except Exception as error:
        return Outcome("crashed", line(error))
    wrong = difference(graph, measured)
    return Outcome("wrong", wrong) if wrong else Outcome("placed", ", ".join(options))


def difference(graph: ComputationGraph, measured: Measured) -> str:
    """What a graph gets wrong; empty if nothing."""
    kept, products = int(graph.persistent_bytes.sum()), graph.canonical_kind.among(PRODUCTS)
    if kept != measured.persistent_bytes:
        return f"persistent bytes: {kept:,}, the framework has {measured.persistent_bytes:,}"
    sizes = np.add.reduceat(np.append(graph.output_bytes, 0), graph.output_ptr[:-1]) * (np.diff(graph.output_ptr) > 0)
    for op in map(int, np.flatnonzero(products & (graph.flops == 0) & (sizes > 0))):
        if not _empty(graph, op):
            return f"flops: {graph.op_names[op]} is a {graph.kind[op]} of 0 FLOPs"
    return "" if measured.flops is None else _other_flops(graph, products, measured.flops)


def _other_flops(graph: ComputationGraph, products: np.ndarray, expected: Mapping[str, int]) -> str:
    """By how much the FLOPs of products differ, and of which kind most; empty within the tolerance."""
    counted = Counter[str]()
    for op in np.flatnonzero(products):
        counted[str(graph.kind[int(op)])] += int(graph.flops[op])
    ours, theirs = counted.total(), sum(expected.values())
    if abs(ours - theirs) <= TOLERANCE * max(ours, theirs):
        return ""
    worst = max(sorted({*counted, *expected}), key=lambda kind: abs(counted[kind] - expected.get(kind, 0)))
    most = f"{counted[worst]:,} and {expected.get(worst, 0):,} of {worst}"
    return f"flops: {ours:,} of products, PyTorch counts {theirs:,}; most differs {most}"


def line(error: Exception) -> str:
    """An error in one line, without where this repository, its libraries and temporary files lie on a machine."""
    text = re.sub(r"\S*site-packages/", "", " ".join(str(error).split()))
    for folder in (Path(__file__).resolve().parents[2], Path(tempfile.gettempdir())):
        text = text.replace(f"{folder}{os.sep}", "")
    text = re.sub(r"\btmp\w{8}/", "", text)
    text = re.sub(r"(?<!\S)(?:[\w.-]*/)+([\w-]+\.(?:onnx|cc|cpp|h))\b", r"\1", text)
    return (text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}")[:400]


def _empty(graph: ComputationGraph, op: int) -> bool:
    """Whether an op consumes a tensor without elements, so that its products sum nothing."""
    sources = graph.edge_dst == op
    outputs = graph.output_ptr[graph.edge_src[sources]] + graph.edge_output[sources]
    return bool((graph.output_bytes[outputs] == 0).any())


def _built(source: Source, name: str, kind: Kind, options: Sequence[str] = ()) -> Case:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # networks draw from it
    case = source.case(name, kind)
    if NO_LAYER_DROP in options and isinstance(case, TorchCase):
        _drop_no_layer(case.module)
    return case


def _placed_with_advice(source: Source, name: str, kind: Kind, case: Case) -> tuple[list[str], ComputationGraph]:
    """The options that refusals name one after the other until a case is placed, and its graph. Raises the last refusal."""
    options: list[str] = []
    while True:
        try:
            sizes: Sizes = "run" if OF_RUN in options else "example" if OF_EXAMPLE in options else None
            return options, _placed(case, kind, sizes)
        except ValueError as error:
            named = [option for advice, option in OPTIONS.items() if advice in str(error) and option not in options]
            if not named:
                raise
        options += named
        case = _built(source, name, kind, options)


def _drop_no_layer(module: nn.Module) -> None:
    """Sets LayerDrop to 0 in a module and its configuration, as if it had been built so."""
    for part in module.modules():
        for holder in (part, getattr(part, "config", None)):
            for knob in [name for name in getattr(holder, "__dict__", {}) if "layerdrop" in name]:
                setattr(holder, knob, 0.0)


def _placed(case: Case, kind: Kind, sizes: Sizes = None) -> ComputationGraph:
    """The graph of a case that is placed and fits. Raises ValueError for a refusal."""
    if isinstance(case, OnnxCase):
        problem = gp.problem(case.path, MACHINE)
    elif kind == "training":
        problem = gp.problem(gp.TorchStep(case.module, case.loss, case.inputs, case.optimizer, sizes=sizes), MACHINE)
    else:
        problem = gp.problem(gp.TorchInference(case.module, case.inputs, sizes), MACHINE)
    step = gp.simulate(problem, gp.place(problem, "heft"), timeline=False)
    if step.infeasible is not None:
        raise ValueError(f"plan: does not fit: {step.infeasible}")
    return problem.graph


class _Warm:
    """A source of one linear layer."""

    KINDS = ("inference", "training")

    def names(self) -> list[str]:
        return ["linear"]

    def case(self, name: str, kind: Kind) -> Case:
        return TorchCase(nn.Linear(2, 2), (torch.zeros(1, 2),))


def warm() -> None:
    """Silences logs, and has the libraries import what they trace and plan with, once, before inputs are forked."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    outcomes = [tried(_Warm(), "linear", kind) for kind in _Warm.KINDS]
    assert all(outcome.word == "placed" for outcome in outcomes), outcomes
