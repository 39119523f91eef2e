"""`gnnplace clusters list|show|new`: machines, and the known hardware that describes them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing, parsed_action
from gnnplace.complaints import printable
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.cluster import Cluster, Device
    from gnnplace.corpus.hardware import Connection, Part

PURPOSE = "Machines: list the known hardware and the presets, show a machine, write one as a cluster file."
DEVICES = ("device", "float32", "tf32", "bfloat16", "memory", "traffic", "slot", "direct link", "rates")
LINKS = ("link", "joins", "GB/s", "latency", "rates")
JOINS = {"host": "host and device", "peer": "devices", "network": "nodes"}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments of an action, whose name is `action`."""
    return parsed_action(
        "clusters", PURPOSE, {"list": _list_parser, "show": _show_parser, "new": _new_parser}, arguments
    )


def _list_parser() -> Parser:
    parser = Parser("clusters list", "The devices and links that describe a machine, and the presets.")
    parser.add_argument("--sources", action="store_true", help="the documents that state the rates")
    options.add_json_argument(parser, "one line of JSON, with everything that is known")
    return parser


def _show_parser() -> Parser:
    parser = Parser("clusters show", "The devices of a machine and the links between them.")
    _add_cluster(parser)
    options.add_json_argument(parser, "the cluster document as one line of JSON")
    return parser


def _new_parser() -> Parser:
    parser = Parser("clusters new", "Writes a machine as a cluster file, in which you change what differs in yours.")
    _add_cluster(parser)
    options.add_file_argument(
        parser, "-o", "--output", metavar="FILE", explained="the JSON file to write", required=True
    )
    parser.add_argument("--name", help="the name of the cluster; the machine's unless given")
    return parser


def _add_cluster(parser: Parser) -> None:
    explained = (
        "a machine such as '2x rtx-4090 + l4, pcie4', a preset, a JSON file (ends in .json or has a '/'), "
        "or here: this one"
    )
    parser.add_argument("cluster", metavar="CLUSTER", help=explained)


def main(chosen: argparse.Namespace) -> int:
    """Runs the action."""
    return {"list": _list, "show": _show, "new": _new}[chosen.action](chosen)


def _list(chosen: argparse.Namespace) -> int:
    with importing():
        from gnnplace.corpus import clusters as presets
        from gnnplace.corpus.hardware import hardware
    if chosen.json:
        terminal.print_json({"presets": list(presets.names())} | hardware().model_dump(mode="json", exclude_none=True))
    elif chosen.sources:
        rows: list[Part | Connection] = [*hardware().devices, *hardware().links]
        terminal.say(*(f"{row.name}: {row.source}" for row in rows))
    else:
        terminal.say("TFLOP/s by dtype (float32 without tensor cores), memory and its GB/s")
        terminal.print_table(DEVICES, map(_part, hardware().devices))
        terminal.say()
        terminal.print_table(LINKS, map(_connection, hardware().links))
        terminal.say("", f"presets: {', '.join(presets.names())}")
    return DONE


def _show(chosen: argparse.Namespace) -> int:
    with importing():
        from gnnplace.formats.clusters import cluster_document
        from gnnplace.sources import graphs as sources
    cluster = sources.cluster(chosen.cluster)
    if chosen.json:
        terminal.print_json(cluster_document(cluster))
        return DONE
    columns = (cluster.name, "kind", "memory", "float32", "bfloat16", "traffic", "launch")
    terminal.print_table(columns, map(_device, cluster.devices))
    terminal.say("", "links, from row to column: GB/s, latency in µs")
    terminal.print_table(
        ("", *map(printable, cluster.device_names)), [_links_from(cluster, src) for src in range(cluster.num_devices)]
    )
    return DONE


def _new(chosen: argparse.Namespace) -> int:
    from dataclasses import replace

    with importing():
        from gnnplace.formats.clusters import write_cluster
        from gnnplace.sources import graphs as sources
    cluster = sources.cluster(chosen.cluster)
    write_cluster(chosen.output, cluster if chosen.name is None else replace(cluster, name=chosen.name))
    return DONE


def _part(part: Part) -> tuple[str, ...]:
    rates = part.gflops_per_s
    lowest = min(rates.values())
    peer = f"{part.peer.link}, {part.peer.gigabytes_per_s:g} GB/s" if part.peer else terminal.NONE
    tf32 = f"{part.tf32_gflops_per_s / 1e3:,.1f}" if part.tf32_gflops_per_s else terminal.NONE
    flops = (f"{rates.get('float32', lowest) / 1e3:,.1f}", tf32, f"{rates.get('bfloat16', lowest) / 1e3:,.1f}")
    return (
        part.name,
        *flops,
        f"{part.memory_gb} GB",
        f"{part.gigabytes_per_s:,g}",
        part.host or terminal.NONE,
        peer,
        part.rates,
    )


def _connection(link: Connection) -> tuple[str, ...]:
    rate = "as the device says" if link.gigabytes_per_s is None else f"{link.gigabytes_per_s:g}"
    if link.published_gigabytes_per_s is not None:
        rate += f" of {link.published_gigabytes_per_s:g}"
    return link.name, JOINS[link.role], rate, f"{link.latency_ns / 1e3:g} µs", link.rates


def _device(device: Device) -> tuple[str, ...]:
    rates = [f"{device.rate(dtype) / 1e12:,.2f} TFLOP/s" for dtype in ("float32", "bfloat16")]
    traffic, launch = f"{device.memory_bytes_per_s / 1e9:,.0f} GB/s", f"{device.launch_ns / 1e3:g} µs"
    return device.name, device.kind, terminal.gibibytes(device.memory_bytes), *rates, traffic, launch


def _links_from(cluster: Cluster, src: int) -> list[str]:
    from gnnplace.cluster import NO_LINK

    cells = []
    for number in cluster.link_index[src]:
        link = None if number == NO_LINK else cluster.links[number]
        cells.append(
            terminal.NONE if link is None else f"{link.bandwidth_bytes_per_s / 1e9:g}, {link.latency_ns / 1e3:g}"
        )
    return [cluster.device_names[src], *cells]
