"""The table of targets: what each writes, and where the function is that makes it."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Target(NamedTuple):
    """Where the function is, what it writes, whether it takes the model that the graph was read from, and whether it
    writes a folder.

    `tries`: the function tries what it writes. `in_turn`: the program runs one device after another, always or in
    inference.
    """

    module: str
    purpose: str
    takes_model: bool = False
    folder: bool = False
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
        "gnnplace.exports.stages", "the split_spec of torch.distributed.pipelining, as JSON", tries=True
    ),
}
