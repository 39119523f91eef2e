"""The data of a report's timeline as JSON columns: rows (streams of devices, channels), bars, ops, chain, memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from matplotlib import colormaps
from matplotlib.colors import to_hex

from gnnplace.cluster import NO_CHANNEL, Cluster
from gnnplace.complaints import printable
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.report import step_words
from gnnplace.report.chain_words import Step
from gnnplace.report.micro_batch_colours import coloured_copies, passes
from gnnplace.report.picture import coloured_phases
from gnnplace.schedules.device_use import memory_use, streams

SHADES = 16  # colours of modules, from the network's first to its last
FEW_DEVICES = 8  # up to so many devices have colours that differ clearly


class Bars(NamedTuple):
    """The bars of ops, of transfers on their sending channels, and again on their receiving channels.

    Rows are the streams of devices, then the channels. `node` is an op, or the number of ops + a transfer.
    """

    row: Int64[np.ndarray, " bars"]
    start_ns: Int64[np.ndarray, " bars"]
    end_ns: Int64[np.ndarray, " bars"]
    node: Int64[np.ndarray, " bars"]


def timeline_data(step: Step) -> dict[str, Any]:
    """The columns by name, with times in ns and memory in bytes.

    Bars are sorted by row, then by start; bars of one row don't overlap.
    """
    rows, bars = _rows(step)
    order = np.lexsort((bars.start_ns, bars.row))
    chain = step.waits.chain(int(step.timeline.end_ns.argmax()))[::-1]
    row_of = np.zeros(step.problem.num_ops + len(step.timeline.transfer_src), dtype=np.int64)
    row_of[bars.node[::-1]] = bars.row[::-1]
    return {
        "step_ns": step.step_time_ns,
        "rows": rows,
        "bars": {name: column[order].tolist() for name, column in bars._asdict().items()},
        "chain": {
            "node": chain.tolist(),
            "row": row_of[chain].tolist(),
            "start_ns": step.waits.start_ns[chain].tolist(),
        },
        "ops": _ops(step),
        **_copies(step, row_of),
        "transfers": _transfers(step),
        "memory": _memory(step),
    }


def device_colours(count: int) -> list[str]:
    """A colour for each device, the same in every part of a report."""
    if count <= FEW_DEVICES:
        return [to_hex(colormaps["Dark2"](device)) for device in range(count)]
    return [to_hex(colormaps["turbo"](device / (count - 1))) for device in range(count)]


def _rows(step: Step) -> tuple[list[dict[str, Any]], Bars]:
    """The rows, and the bars in them.

    Every device has a row. Its further streams, and channels, have one only if they are used.
    """
    cluster, timeline, ops = step.problem.cluster, step.timeline, step.problem.num_ops
    link = cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    sends, receives = cluster.link_channel[link], cluster.link_receive_channel[link]
    received = np.flatnonzero(receives != NO_CHANNEL)
    stream = streams(step.problem, step.placement.device, timeline)
    place = np.concatenate(
        [
            np.arange(cluster.num_devices),
            step.placement.device,
            cluster.num_devices + np.append(sends, receives[received]),
        ]
    )
    key = place * int(cluster.streams.max())
    key[cluster.num_devices :][:ops] += stream
    used, row = np.unique(key, return_inverse=True)
    nodes = ops + np.arange(len(link))
    rows = [_row(cluster, *divmod(each, int(cluster.streams.max()))) for each in used.tolist()]
    return rows, Bars(
        row[cluster.num_devices :],
        np.concatenate([timeline.start_ns, timeline.transfer_start_ns, timeline.receive_start_ns[received]]),
        np.concatenate([timeline.end_ns, timeline.transfer_end_ns, timeline.receive_end_ns[received]]),
        np.concatenate([np.arange(ops), nodes, nodes[received]]),
    )


def _row(cluster: Cluster, place: int, stream: int) -> dict[str, Any]:
    if place < cluster.num_devices:
        name = printable(cluster.device_names[place])
        return {"name": name if not stream else f"{name}, stream {stream + 1}", "channel": False}
    kind, name = cluster.channels[place - cluster.num_devices]
    return {"name": f"{'links out of' if kind == 'device' else 'channel'} {printable(name)}", "channel": True}


def _ops(step: Step) -> dict[str, Any]:
    """The names, kinds, phases and modules of ops, with colours, and the bytes of their outputs."""
    graph, modules = step.problem.graph, step.modules
    phases = coloured_phases(graph)
    shades = [to_hex(colormaps["viridis"](shade / (SHADES - 1))) for shade in range(SHADES)]
    return {
        "name": list(map(printable, graph.op_names)),
        "kind": {"names": list(map(printable, graph.kind.values)), "of": graph.kind.index.tolist()},
        "phase": {
            "names": [phase.name for phase in phases],
            "colours": [to_hex(phase.colour) for phase in phases],
            "of": np.argmax([phase.ops for phase in phases], axis=0).tolist(),
        },
        "module": {"names": list(map(printable, modules.names)), "of": modules.module.tolist()},
        "shade": {"colours": shades, "of": (modules.module * SHADES // modules.num_modules).tolist()},
        "bytes": _output_bytes(graph).tolist(),
    }


def _copies(step: Step, row_of: Int64[np.ndarray, " nodes"]) -> dict[str, Any]:
    """The colours of micro-batches, what each op is a copy of, and passes of rows; nothing for one micro-batch.

    `of` is the colour of each op. Colours of one `owner` have one entry of the legend.
    """
    graph = step.problem.graph
    if graph.copies is None:
        return {}
    colours, words = coloured_copies(graph), step_words.copies(graph)
    in_rows = passes(graph, row_of[: graph.num_ops], step.timeline)
    copies = {
        "title": step_words.one(graph),
        "names": [each.name for each in colours],
        "colours": [each.colour for each in colours],
        "owner": [each.owner for each in colours],
        "of": np.argmax([each.ops for each in colours], axis=0).tolist(),
        "words": {"names": list(words.values), "of": words.index.tolist()},
        "passes": {name: column.tolist() for name, column in in_rows._asdict().items()},
    }
    return {"copies": copies}


def _output_bytes(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    op_bytes = np.zeros(graph.num_ops, dtype=np.int64)
    np.add.at(op_bytes, graph.output_op, np.where(graph.output_alias == NONE, graph.output_bytes, 0))
    return op_bytes


def _transfers(step: Step) -> dict[str, Any]:
    timeline, graph, names = step.timeline, step.problem.graph, list(map(printable, step.problem.cluster.device_names))
    return {
        "op": graph.output_op[timeline.transfer_output].tolist(),
        "bytes": graph.output_bytes[timeline.transfer_output].tolist(),
        "link": [
            f"{names[src]} → {names[dst]}"
            for src, dst in zip(timeline.transfer_src, timeline.transfer_dst, strict=True)
        ],
    }


def _memory(step: Step) -> list[dict[str, Any]]:
    uses = memory_use(step.problem, step.placement.device, step.timeline)
    colours = device_colours(step.problem.num_devices)
    return [
        {
            "name": printable(device.name), "colour": colour, "capacity": device.memory_bytes,
            "time_ns": [*use.time_ns.tolist(), step.step_time_ns], "bytes": [*use.bytes.tolist(), int(use.bytes[-1])],
        }
        for device, use, colour in zip(step.problem.cluster.devices, uses, colours, strict=True)
    ]  # fmt: skip
