"""Whether a network that is placed computes what plain PyTorch does: in training steps and in inference, under random placements."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import gnnplace as gp
from experiments.placed_operators.nets import INPUT, Net, loss
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.execution.torch.values import is_random
from gnnplace.units.units import expand, units

STEPS, RATE = 2, 0.125
TOLERANCE = 1e-4
DISTURBED, AS_FAR = 1e-6, 10  # a start that differs by rounding, and how much farther than what comes of it rounding may lead
CORES = Cluster(
    "cores",
    tuple(Device(name, "cpu", 2**33, 10**9, 10**9) for name in ("a", "b")),
    tuple(Link(*ends, 10**9) for ends in (("a", "b"), ("b", "a"))),
)


class Outcome(NamedTuple):
    """`equal`, `rounded` (which value is within rounding), `refused` (why), `drawn` (at random, or undefined), `invalid` (PyTorch itself
    refuses) or `wrong`."""

    said: str
    why: str = ""


Values = dict[str, Tensor]


def outcomes(net: Net, placements: int) -> Iterator[tuple[str, Outcome]]:
    """What a net's training step and its inference come to."""
    yield "step", _outcome(net, _train, lambda module: gp.TorchStep(module, loss, (INPUT,), "sgd"), placements)
    yield "inference", _outcome(net, _infer, lambda module: gp.TorchInference(module.eval(), (INPUT,)), placements)


def _outcome(net: Net, run: Callable[..., Values], step_of: Callable[[nn.Module], Any], placements: int) -> Outcome:
    try:
        module = net.make()
        step = step_of(module)
        expected, again = (run(copy.deepcopy(module), None) for _ in range(2))
    except Exception as error:  # of any operator, on its own samples
        return Outcome("invalid", _line(error))
    if _difference(again, expected)[0]:
        return Outcome("drawn")
    try:
        problem = gp.problem(step, CORES)
        start = copy.deepcopy(module.state_dict())
        worst = 0.0, ""
        for seed in range(placements):
            module.load_state_dict(start)
            for parameter in module.parameters():
                parameter.grad = None
            with gp.placed(step, gp.Plan.of(problem, _placement(problem, seed))) as placed:
                found = run(module, placed)
            distance, where = _difference(found, expected)
            if distance > TOLERANCE and _diverges(net, run, found, expected):
                distance, where = TOLERANCE, f"{where}, where a start that differs by rounding leads as far"
            worst = max(worst, (distance, where))
    except (ValueError, gp.MeasurementError) as error:  # of a plan that fits, and should run, unless the module itself can't be captured
        return Outcome("refused" if str(error).startswith("module: ") else "wrong", _line(error))
    if worst[0] > TOLERANCE:
        draws = any(map(is_random, step.traced("net").trace.graph.nodes))  # the database seeds some operators at each call
        return Outcome("drawn") if draws else Outcome("wrong", f"{worst[1]}: {worst[0]:.2g}")
    return Outcome("rounded", worst[1]) if worst[0] else Outcome("equal")


def _diverges(net: Net, run: Callable[..., Values], found: Values, expected: Values) -> bool:
    """Whether plain PyTorch gets as far away, value by value, from a start that differs by rounding: its own losses grow without end."""
    module, generator = net.make(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1 + DISTURBED * torch.randn(parameter.shape, generator=generator))
    disturbed = run(module, None)
    most = {name: max(TOLERANCE, AS_FAR * _distance(disturbed[name], value)) for name, value in expected.items()}
    return all(_distance(found[name], value) <= most[name] for name, value in expected.items())


def _placement(problem: gp.Problem, seed: int) -> gp.Placement:
    closed = units(problem.graph, "ops")
    return gp.Placement(expand(closed, np.random.default_rng(seed).integers(2, size=closed.num_units).astype(np.int32)))


def _train(module: nn.Module, placed: nn.Module | None) -> Values:
    """Losses, gradients and the state after `STEPS` steps."""
    values: Values = {}
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, foreach=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        made = loss(module, INPUT) if placed is None else placed(INPUT)
        made.backward()
        values[f"loss {step}"] = made.detach()
        values |= {f"gradient {step} of {name}": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
        optimizer.step()
    return values | _state(module)


def _infer(module: nn.Module, placed: nn.Module | None) -> Values:
    values: Values = {}
    with torch.no_grad():
        for step in range(STEPS):
            made = (module if placed is None else placed)(INPUT)
            leaves = [leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, Tensor)]
            values |= {f"output {number} of call {step}": leaf.clone() for number, leaf in enumerate(leaves)}
    return values | _state(module)


def _state(module: nn.Module) -> Values:
    return {name: value.detach().clone() for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}


def _difference(found: Values, expected: Values) -> tuple[float, str]:
    """The largest deviation, relative to the largest finite element, and of which value; infinite for another value, shape or type."""
    if found.keys() != expected.keys():
        return math.inf, f"only one has {sorted(found.keys() ^ expected.keys())[0]}"
    return max(((_distance(found[name], value), name) for name, value in expected.items()), default=(0.0, ""))


def _distance(value: Tensor, other: Tensor) -> float:
    if value.layout != other.layout or value.shape != other.shape or value.dtype != other.dtype:
        return math.inf
    if value.layout is not torch.strided:
        value, other = value.to_dense(), other.to_dense()
    value, other = value.resolve_conj().resolve_neg(), other.resolve_conj().resolve_neg()
    if value.is_complex():
        value, other = torch.view_as_real(value), torch.view_as_real(other)
    if not value.dtype.is_floating_point:
        return 0.0 if torch.equal(value, other) else math.inf
    same = (value == other) | (value.isnan() & other.isnan())
    overflowed = (value.isnan() | other.isnan()) & ~value.isfinite() & ~other.isfinite()  # infinity, and what infinities left of each other
    if bool((same | overflowed).all()):
        return 0.0 if bool(same.all()) else TOLERANCE
    away = (value.double() - other.double()).abs()[~(same | overflowed)]
    size = other.double().abs()
    finite = size[size.isfinite()]
    distance = (away.max() / max(float(finite.max()) if finite.numel() else 0.0, 1e-30)).item()
    return distance if math.isfinite(distance) else math.inf


def _line(error: Exception) -> str:
    """What it says in a line, without where this repository and its libraries lie on a machine."""
    kind = "" if isinstance(error, ValueError | gp.MeasurementError) else f"{type(error).__name__}: "
    said = " ".join(str(error).split())
    for folder in (Path(torch.__file__).parents[1], Path(__file__).resolve().parents[2]):
        said = said.replace(f"{folder}/", "")
    return (kind + said)[:300]
