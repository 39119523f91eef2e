"""The targets of `gnnplace export`: programs that read placements, and for each the function that writes its files.

The parser of the command needs the table alone. So this module imports what takes time only when a file is written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from gnnplace.choices import RuntimeName
from gnnplace.runtimes.refusal import UnsayableError

if TYPE_CHECKING:
    from gnnplace.exports.trial import Say, Trial
    from gnnplace.graph import ComputationGraph
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem

RUNTIME_NAMES: tuple[RuntimeName, ...] = get_args(RuntimeName)
WORTH_SAYING = 0.005  # the least share of the planned step time by which a runtime's differs
Files = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder by their names


class Target(NamedTuple):
    """A program that reads placements. The function that writes for it stands in `module`, under the target's name.

    `takes_model`: the function needs the model that the graph was read from. `folder`: it writes a folder, always or of
    several micro-batches, which the program then runs. `tries`: it tries its result before it is written.
    """

    module: str
    purpose: str
    takes_model: bool = False
    folder: Literal[True, False, "several"] = False
    tries: bool = False


TARGETS = {
    "accelerate": Target(
        "gnnplace.exports.device_map",
        "the device_map of accelerate and transformers, module by module, as JSON",
        tries=True,
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
    ),
    "onnxruntime": Target(
        "gnnplace.exports.onnx_segments",
        "a folder: an .onnx for each segment on a device, a manifest, a program",
        takes_model=True,
        folder=True,
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
    if read.sha256 != placed.plain.sha256:
        raise ValueError(
            f"{model.path}: its graph has the checksum {read.sha256[:12]}..., that of the placed one is "
            f"{placed.plain.sha256[:12]}..."
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
    from gnnplace.formats import strict_json

    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    check_micro_batches(to, problem.graph.micro_batches)
    target, runtime = TARGETS[to], next((name for name in RUNTIME_NAMES if name == to), None)
    if runtime is not None and problem.graph.runtime not in (None, runtime):
        raise UnsayableError(
            f"{to}: the placement was made for {problem.graph.runtime}; make one with gnnplace place --for {to}"
        )
    write = getattr(import_module(target.module), to.replace("-", "_"))
    more = (*((model,) if target.takes_model else ()), *((say, trial) if target.tries else ()))
    files: Files = write(problem, placement, *more)
    if runtime is not None and (line := as_exported(problem, placement, runtime)) is not None:
        say(line)
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


def as_exported(problem: Problem, placement: Placement, runtime: RuntimeName) -> str | None:
    """One line with the step time as a runtime executes the placement, and on one device; None if that is the plan's.

    Pipelines of several micro-batches say it themselves.

    >>> import gnnplace as gp
    >>> problem = gp.problem("two-tower-inference", cluster="k40-2")
    >>> as_exported(problem, gp.place(problem, "gpu"), "onnxruntime")
    >>> as_exported(problem, gp.place(problem, "heft"), "onnxruntime").split(" (")[0]
    'onnxruntime: as exported 32.576 ms, planned 20.655 ms, one device 29.390 ms'
    """
    from gnnplace.baselines.single import best_device
    from gnnplace.placement import rule_of
    from gnnplace.runtimes.runtime import in_turn, ran_by
    from gnnplace.simulator.simulator import simulate

    if problem.graph.copies is not None:
        return None
    run = ran_by(problem, runtime)
    (planned,), (ran,) = simulate(problem, [placement]), simulate(run, [placement])
    if planned.step_time_ns is None or ran.step_time_ns is None:
        return None
    if abs(ran.step_time_ns - planned.step_time_ns) < WORTH_SAYING * planned.step_time_ns:
        return None
    alone = best_device(run, simulate, rule_of(placement.schedule))
    times = {"as exported": ran.step_time_ns, "planned": planned.step_time_ns}
    if alone is not None and alone.fits:
        times["one device"] = alone.step_time_ns
    stated = ", ".join(f"{name} {ns / 1e6:,.3f} ms" for name, ns in times.items() if ns is not None)
    why = "it runs one device after another" if in_turn(run.graph) else "its order and its rules are others"
    return f"{runtime}: {stated} ({why}); plan it with --for {runtime}"
