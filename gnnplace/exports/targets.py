"""The table of targets, which the command line and the API read: functions from a problem and a placement to what is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from gnnplace.exports.model import Model
from gnnplace.formats import strict_json
from gnnplace.formats.atomic import write_folder, write_text
from gnnplace.placement import Placement
from gnnplace.problems import Problem

Written = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder


class Target(NamedTuple):
    """Where the function is, what it writes, whether it takes the model that the graph was read from, and whether it writes a folder."""

    module: str
    purpose: str
    takes_model: bool = False
    folder: bool = False


TARGETS = {
    "accelerate": Target("gnnplace.exports.device_map", "the device_map of accelerate and transformers, module by module, as JSON"),
    "chrome-trace": Target("gnnplace.exports.chrome_trace", "the simulated step, for ui.perfetto.dev or chrome://tracing"),
    "dot": Target("gnnplace.exports.graphs", "the graph for Graphviz, coloured by device"),
    "graphml": Target("gnnplace.exports.graphs", "the graph for networkx, yEd or Gephi, with device, module, start and end of every op"),
    "networkx": Target("gnnplace.exports.graphs", "the same for networkx, as node-link JSON"),
    "openvino": Target("gnnplace.exports.openvino_affinity", "the affinity of every node of the placed .xml, for HETERO, as JSON", True),
    "onnxruntime": Target(
        "gnnplace.exports.onnx_segments", "a folder: an .onnx for each segment on a device, a manifest, a program", True, True
    ),
    "tensorflow": Target(
        "gnnplace.exports.tensorflow_devices", "a folder: devices of ops, a device function, the placed GraphDef", True, True
    ),
    "torch-pipelining": Target("gnnplace.exports.stages", "the split_spec of torch.distributed.pipelining, as JSON"),
}


def exported(problem: Problem, placement: Placement, to: str, model: Model | None = None) -> Written:
    """A placement as target `to` reads it: the text of a file, or the files of a folder by their names.

    Raises ValueError for an unknown target, for what a target can't say (`UnsayableError`), and where it needs the model and has none or
    another one.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> exported(problem, gp.place(problem, "gpu"), "dot").splitlines()[0]
    'digraph "squeezenet" {'
    """
    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    function = getattr(import_module(TARGETS[to].module), to.replace("-", "_"))
    written: Written = function(problem, placement, model) if TARGETS[to].takes_model else function(problem, placement)
    return written


def export(problem: Problem, placement: Placement, to: str, path: str | os.PathLike[str], model: Model | None = None) -> None:
    """Writes `exported` to a file or a folder, whole or not at all. Raises ValueError as it does, and OSError."""
    written = exported(problem, placement, to, model)
    if isinstance(written, str):
        write_text(path, written)
    else:
        write_folder(path, written)
