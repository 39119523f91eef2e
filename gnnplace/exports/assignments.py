"""Assignments that somebody already has, read as placements: of each target in the file of its writer.

An assignment names modules, layers, nodes or ops, and gives each a device as its program names devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int32
from pydantic import RootModel

from gnnplace.choices import RuntimeName
from gnnplace.exports.targets import TARGETS
from gnnplace.formats import strict_json
from gnnplace.isolation import regular_file
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import listed

if TYPE_CHECKING:
    from gnnplace.exports.targets import Model
    from gnnplace.exports.trial import Trial

MAX_BYTES = 2**28
NUMBER = re.compile(r"^(?:.*/device:)?(?P<kind>[A-Za-z_]+)?[:.]?(?P<number>\d+)?$")


def read_assignment(
    path: str, problem: Problem, runtime: RuntimeName, model: Model | None = None, trial: Trial | None = None
) -> Placement:
    """The placement that a file assigns, in the format that `runtime` reads.

    `model` is the file that the graph was read from, `trial` reaches the module where another process holds it. Raises
    ValueError (one line, the path first) for another format, unknown names, names without a device, and devices that
    the cluster lacks; OSError for an unreadable file.
    """
    read = getattr(import_module(TARGETS[runtime].module), f"assigned_{runtime.replace('-', '_')}")
    data = regular_file.read(path, MAX_BYTES)
    try:
        placement: Placement = read(problem, strict_json.loads(data), model, trial)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return placement


def checked(document: object, shape: Any, what: str) -> Any:
    """A part of a parsed document. Raises ValueError that names what it should be."""
    try:
        return RootModel[shape].model_validate(document, strict=True).root
    except ValueError as error:
        raise ValueError(f"is no {what}") from error


def device_of(problem: Problem, name: int | str) -> int:
    """The device that a program calls `cuda:1`, `GPU.1`, `/device:GPU:1` or 1; numbers count within the kind.

    Raises ValueError if the cluster lacks it.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> [device_of(problem, name) for name in ("cpu", 1, "cuda:0", "GPU.1", "/job:worker/device:GPU:0")]
    [0, 2, 1, 2, 1]
    """
    parts = NUMBER.match(str(name))
    kind, number = (None, 0) if parts is None else ((parts["kind"] or "cuda").lower(), int(parts["number"] or 0))
    of_kind = [
        index
        for index, device in enumerate(problem.cluster.devices)
        if (device.kind != "cpu" if kind == "cuda" else device.kind == kind)
    ]
    if number >= len(of_kind):
        names = ", ".join(problem.cluster.device_names)
        raise ValueError(f"{strict_json.shown(name)} is no device of {problem.cluster.name}, which has {names}")
    return of_kind[number]


def of_ops(problem: Problem, device: Mapping[str, int | str], ops: Mapping[str, int], what: str) -> Placement:
    """The placement of named ops, and of all others with what they are read by or read from.

    Raises ValueError for unknown names and for ops without a device.
    """
    known_as(device, tuple(ops), what)
    if missing := [name for name in ops if name not in device]:
        raise ValueError(f"gives no device to {listed(missing)}")
    at = {name: device_of(problem, name) for name in dict.fromkeys(device.values())}
    placed = np.full(problem.num_ops, -1, dtype=np.int32)
    for name, op in ops.items():
        placed[op] = at[device[name]]
    return Placement(_spread(problem, placed))


def known_as(names: Iterable[str], valid: Sequence[str], what: str) -> None:
    """Raises ValueError for the first name that is not valid."""
    among = set(valid)
    if (stray := next((name for name in names if name not in among), None)) is not None:
        raise ValueError(strict_json.unknown(what, stray, valid))


def _spread(problem: Problem, placed: Int32[np.ndarray, " ops"]) -> Int32[np.ndarray, " ops"]:
    """Ops without a device go where their first reader is, or else their first source."""
    graph = problem.graph
    for op in graph.order[::-1].tolist():
        readers = graph.edge_dst[graph.out_ptr[op] : graph.out_ptr[op + 1]]
        if placed[op] < 0:
            placed[op] = next((placed[reader] for reader in readers if placed[reader] >= 0), -1)
    for op in graph.order.tolist():
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        if placed[op] < 0:
            placed[op] = next((placed[source] for source in graph.edge_src[edges] if placed[source] >= 0), 0)
    return placed
