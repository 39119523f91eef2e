"""The targets of `gnnplace export`: programs that read placements, and for each the function that writes its files.

The parser of the command needs the table alone. So this module imports what takes time only when a file is written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from gnnplace.exports.refusal import UnsayableError

if TYPE_CHECKING:
    from gnnplace.exports.trial import Say, Trial
    from gnnplace.graph import ComputationGraph
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem

Files = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder by their names


class Target(NamedTuple):
    """A program that reads placements. The function that writes for it stands in `module`, under the target's name.

    `takes_model`: the function needs the model that the graph was read from. `folder`: it writes a folder, always or of
    several micro-batches, which the program then runs. `tries`: it tries its result before it is written. `in_turn`:
    the program runs one device after another, always or in inference.
    """

    module: str
    purpose: str
    takes_model: bool = False
    folder: Literal[True, False, "several"] = False
    tries: bool = False
    in_turn: Literal["always", "inference"] | None = None


TARGETS = {
    "accelerate": Target(
        "gnnplace.exports.device_map",
        "the device_map of accelerate and transformers, module by module, as JSON",
        tries=True,
        in_turn="inference",
    ),
    "chrome-trace": Target(
        "gnnplace.exports.chrome_trace", "the simulated step, for ui.perfetto.dev or chrome://tracing"
    ),
    "dot": Target("gnnplace.exports.graphs", "the graph for Graphviz, coloured by device"),
    "graphml": Target(
        "gnnplace.exports.graphs",
        "the graph for networkx, yEd or Gephi, with device, module, start and end of every op",
    ),
    "networkx": Target("gnnplace.exports.graphs", "the same for networkx, as node-link JSON"),
    "openvino": Target(
        "gnnplace.exports.openvino_affinity",
        "the affinity of every node of the placed .xml, for HETERO, as JSON",
        takes_model=True,
        in_turn="always",
    ),
    "onnxruntime": Target(
        "gnnplace.exports.onnx_segments",
        "a folder: an .onnx for each segment on a device, a manifest, a program",
        takes_model=True,
        folder=True,
        in_turn="always",
    ),
    "tensorflow": Target(
        "gnnplace.exports.tensorflow_devices",
        "a folder: devices of ops, a device function, the placed GraphDef",
        takes_model=True,
        folder=True,
    ),
    "torch-pipelining": Target(
        "gnnplace.exports.torch_pipelining",
        "the split_spec of torch.distributed.pipelining, as JSON; of several micro-batches a folder: the stages, the "
        "planned order as CSV, a script that runs it",
        folder="several",
        tries=True,
    ),
}


class Model(NamedTuple):
    """The model that a graph was read from: GRAPH as commands take it, with its sizes of dimensions and its fetches."""

    path: str  # a file, FILE.py:FUNCTION, or a name of the corpus
    dims: Mapping[str, int] = {}
    fetches: tuple[str, ...] = ()


def check_same(read: ComputationGraph, placed: ComputationGraph, model: Model) -> None:
    """Raises ValueError if the graph read from the model is not the placed graph."""
    if read.sha256 != placed.sha256:
        raise ValueError(
            f"{model.path}: its graph has the checksum {read.sha256[:12]}..., that of the placed one is "
            f"{placed.sha256[:12]}..."
        )


def check_micro_batches(to: str, number: int) -> None:
    """Raises UnsayableError for a step of several micro-batches if the target's program runs the model itself."""
    several = [name for name, target in TARGETS.items() if target.folder == "several"]
    runs = [name for name, target in TARGETS.items() if (target.takes_model or target.tries) and name not in several]
    if number > 1 and to in runs:
        others = ", ".join(name for name in TARGETS if name not in runs)
        raise UnsayableError(
            f"{to}: runs the model as it is, one micro-batch a step, and this step has {number}; place it with "
            f"--micro-batches 1 (or TorchStep(..., micro_batches=1)), or export it to {others}"
        )


def exported(
    problem: Problem,
    placement: Placement,
    to: str,
    model: Model | None = None,
    say: Say = warnings.warn,
    trial: Trial | None = None,
) -> Files:
    """The files in which target `to` reads a placement.

    `say` receives one line if the files could not be tried, and one if the target's program can't keep the planned step
    time. `trial` tries the module where another process holds it. Raises ValueError for an unknown target, for a
    placement that the target can't express (`UnsayableError`), and for a missing or different model.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> exported(problem, gp.place(problem, "gpu"), "dot").splitlines()[0]
    'digraph "squeezenet" {'
    """
    from gnnplace.exports.homes import LATER
    from gnnplace.formats import strict_json

    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    check_micro_batches(to, problem.graph.micro_batches)
    target = TARGETS[to]
    write = getattr(import_module(target.module), to.replace("-", "_"))
    more = (*((model,) if target.takes_model else ()), *((say, trial) if target.tries else ()))
    files: Files = write(problem, placement, *more)
    trains = problem.graph.phase.among(LATER).any()
    in_turn = target.in_turn == "always" or (target.in_turn == "inference" and not trains)
    if in_turn and (warning := lost_overlap(problem, placement, to)):
        say(warning)
    return files


def export(
    problem: Problem,
    placement: Placement,
    to: str,
    path: str | os.PathLike[str],
    model: Model | None = None,
    say: Say = warnings.warn,
    trial: Trial | None = None,
) -> None:
    """Writes the result of `exported` to a file or a folder, whole or not at all.

    Raises ValueError as `exported` does, and OSError.
    """
    from gnnplace.formats.atomic import write_folder, write_text

    files = exported(problem, placement, to, model, say, trial)
    if isinstance(files, str):
        write_text(path, files)
    else:
        write_folder(path, files)


def lost_overlap(problem: Problem, placement: Placement, program: str) -> str | None:
    """One line with the overlap of devices that a program which runs one after another loses, and its least step time.

    None if the devices of the planned step don't overlap.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> lost_overlap(problem, gp.place(problem, "gpu"), "it")
    >>> lost_overlap(problem, gp.place(problem, "heft"), "it").split(" of ")[0]
    'it runs one device after another, and 3.578 ms'
    """
    from gnnplace.simulator.simulator import simulate

    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None or result.step_time_ns is None:
        return None
    start, end = result.timeline.start_ns, result.timeline.end_ns
    on_device = (placement.device == device for device in range(problem.num_devices))
    in_turn_ns = sum(_covered_ns(start[ops].tolist(), end[ops].tolist()) for ops in on_device)
    overlap_ns = in_turn_ns - _covered_ns(start.tolist(), end.tolist())
    if not overlap_ns:
        return None
    planned, overlap, least = (f"{ns / 1e6:,.3f} ms" for ns in (result.step_time_ns, overlap_ns, in_turn_ns))
    return (
        f"{program} runs one device after another, and {overlap} of the planned {planned} overlap: its step takes "
        f"{least} at least"
    )


def _covered_ns(start_ns: Sequence[int], end_ns: Sequence[int]) -> int:
    """The length of the union of intervals."""
    covered_ns = until_ns = 0
    for start, end in sorted(zip(start_ns, end_ns, strict=True)):
        covered_ns += max(0, end - max(start, until_ns))
        until_ns = max(until_ns, end)
    return covered_ns
