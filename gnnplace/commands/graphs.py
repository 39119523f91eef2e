"""`gnnplace graphs list|show|import|synthetic`: the corpus."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from jaxtyping import Int64

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.choices import FAMILIES
from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing, parsed_action
from gnnplace.corpus.splits import Split
from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.schedules.paths import longest_paths
from gnnplace.version import VERSION

if TYPE_CHECKING:
    from gnnplace.problems import Problem


PURPOSE = (
    "The corpus: list its graphs, show what one holds, import one from a file, make one whose ops cost what "
    "its ops cost."
)
BUILDER = "gnnplace graphs import"
LISTED = ("name", "family", "lineage", "split", "mode", "source", "ops", "edges", "licence", "sha256")
MOST_KINDS = 15


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of an action, which `action` names."""
    parsers = {"list": _list_parser, "show": _show_parser, "import": _import_parser, "synthetic": _synthetic_parser}
    return parsed_action("graphs", PURPOSE, parsers, arguments)


def _list_parser() -> Parser:
    parser = Parser("graphs list", "The graphs of the corpus.")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser


def _show_parser() -> Parser:
    parser = Parser("graphs show", "What a graph holds, and the most that placing it on a cluster can gain.")
    options.add_problem_arguments(parser, preset="k40-2")
    parser.add_argument(
        "--picture",
        metavar="FILE",
        type=options.output,
        help="draw what could run at once, and when each layer could: .png, .svg or .pdf",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def _import_parser() -> Parser:
    parser = Parser("graphs import", "Adds a graph of a file to the corpus.")
    parser.add_argument("file", metavar="FILE", help="the file")
    options.add_reading_arguments(parser, mode=None)
    parser.add_argument("--name", help="the name in the corpus; where absent its own, or the file's without its ending")
    for option in ("family", "lineage", "source", "licence"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--split", choices=get_args(Split), required=True)
    return parser


def _synthetic_parser() -> Parser:
    parser = Parser(
        "graphs synthetic", "A synthetic graph as JSON: a drawn shape whose ops cost what ops of real graphs cost."
    )
    parser.add_argument("family", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--ops", type=options.count, required=True, metavar="N", help="how many ops")
    parser.add_argument("--seed", type=options.seed, default=0, help="another seed, another graph")
    parser.add_argument(
        "--width", type=int, help="ops side by side, or chains of a fork; the family's own where absent"
    )
    parser.add_argument("--density", type=float, help="edges an op in the mean")
    parser.add_argument("--blocks", type=int, help="how often a pattern is repeated")
    parser.add_argument(
        "--donors", nargs="+", metavar="GRAPH", help="whose ops lend their costs; the training split where absent"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=options.output, required=True, help="the JSON file")
    return parser


def main(chosen: argparse.Namespace) -> int:
    """Does what the action says."""
    return {"list": _list, "show": _show, "import": _import, "synthetic": _synthetic}[chosen.action](chosen)


def _list(chosen: argparse.Namespace) -> int:
    with importing():
        from gnnplace.corpus import manifest
    entries = [entry.model_dump(include=set(LISTED)) for entry in manifest.entries()]
    if chosen.json:
        terminal.print_json(entries)
    else:
        columns = ("name", "family", "split", "mode", "ops", "edges", "source", "licence")
        terminal.print_table(columns, [[str(entry[column]) for column in columns] for entry in entries])
    return DONE


def _show(chosen: argparse.Namespace) -> int:
    with importing():
        from gnnplace.commands.graphs import summary
    problem = options.problem(chosen)
    if chosen.picture is not None:
        _draw(chosen.picture, problem)
    facts = summary(problem)
    if chosen.json:
        terminal.print_json(facts)
    else:
        _print(facts)
    return DONE


def _draw(path: str, problem: Problem) -> None:
    from gnnplace.commands.graphs import fastest_ns
    from gnnplace.report.graph_picture import write_graph_picture  # matplotlib takes a second to import

    write_graph_picture(path, problem.graph, fastest_ns(problem))


def _print(facts: dict[str, Any]) -> None:
    rows = [
        ("ops", f"{facts['ops']:,}, of them {facts['ops_without_kernel']:,} without a kernel"),
        ("edges", f"{facts['edges']:,}, of them {facts['control_edges']:,} control"),
        ("arithmetic", f"{facts['flops'] / 1e9:,.1f} GFLOP"),
        ("parameters and optimiser", terminal.mebibytes(facts["persistent_bytes"])),
        ("outputs, aliases not counted", terminal.mebibytes(facts["output_bytes"])),
        ("largest workspace", terminal.mebibytes(facts["largest_workspace_bytes"])),
        ("work, fastest devices", terminal.milliseconds(facts["work_ns"])),
        ("critical path, free transfers", terminal.milliseconds(facts["critical_path_ns"])),
        ("work / critical path", f"{facts['parallelism']:.2f}"),
        ("bound of any placement", terminal.bounded(facts["bound_ns"], facts["bound"], None)),
    ]
    terminal.print_table((f"{facts['name']} on {facts['cluster']}", ""), rows)
    _print_shares("kind", facts["kinds"])
    _print_shares("phase", facts["phases"])


def _print_shares(what: str, shares: list[dict[str, Any]]) -> None:
    rows = [
        (
            share["value"] or terminal.NONE,
            f"{share['ops']:,}",
            f"{share['flops'] / 1e9:,.1f}",
            terminal.milliseconds(share["work_ns"]),
        )
        for share in shares[:MOST_KINDS]
    ]
    title = f"the {MOST_KINDS} of {len(shares)} with most work" if len(shares) > MOST_KINDS else None
    terminal.print_table((what, "ops", "GFLOP", "work"), rows, title)


def _import(chosen: argparse.Namespace) -> int:
    from dataclasses import replace

    with importing():
        from gnnplace.corpus import manifest
        from gnnplace.sources import graphs as sources
    manifest.check_writable()
    graph = sources.graph_file(chosen.file, options.reading(chosen))
    if chosen.name is not None:
        graph = replace(graph, name=chosen.name)
    about = {name: getattr(chosen, name) for name in ("family", "lineage", "source", "licence", "split", "mode")}
    entry = manifest.add(graph, builder=BUILDER, builder_version=f"gnnplace {VERSION}", replaces=False, **about)
    terminal.say(f"{entry.name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}")
    return DONE


def _synthetic(chosen: argparse.Namespace) -> int:
    """Writes a synthetic graph, the same for the same arguments."""
    with importing():
        from gnnplace.corpus import manifest
        from gnnplace.corpus.synthetic import synthetic
        from gnnplace.formats import atomic
        from gnnplace.formats.graphs import graph_document
        from gnnplace.sources import graphs as sources
    donors = chosen.donors or [entry.name for entry in manifest.entries() if entry.split == "train"]
    graph = synthetic(
        chosen.family, num_ops=chosen.ops, seed=chosen.seed, donors=[sources.graph(name) for name in donors],
        width=chosen.width, density=chosen.density, blocks=chosen.blocks,
    )  # fmt: skip
    atomic.write_text(chosen.output, json.dumps(graph_document(graph)) + "\n")
    terminal.say(f"{graph.name}: {graph.num_ops} ops, {graph.num_edges} edges, sha256 {graph.sha256}")
    return DONE


def summary(problem: Problem) -> dict[str, Any]:
    """Counts, memory, work and critical path (each op on its fastest allowed device, transfers free), bound, shares by
    kind and phase.

    `parallelism` is work / critical path: however many devices there are, no placement is faster than one fastest
    device by more.
    """
    graph, fastest = problem.graph, fastest_ns(problem)
    work, critical_path = int(fastest.sum()), longest_paths(graph, fastest).critical_path_ns
    roots = graph.output_alias == NONE
    return {
        "name": graph.name,
        "sha256": graph.sha256,
        "cluster": problem.cluster.name,
        "ops": graph.num_ops,
        "edges": graph.num_edges,
        "control_edges": int((graph.edge_data == NONE).sum()),
        "ops_without_kernel": int((~graph.kernel).sum()),
        "flops": int(graph.flops.sum()),
        "persistent_bytes": int(graph.persistent_bytes.sum()),
        "output_bytes": int(graph.output_bytes[roots].sum()),
        "largest_workspace_bytes": int(graph.workspace_bytes.max()),
        "work_ns": work,
        "critical_path_ns": critical_path,
        "parallelism": round(work / critical_path, 3),
        "bound_ns": lower_bound(problem),
        "bound": bound_name(problem),
        "kinds": shares(graph, graph.kind, fastest),
        "phases": shares(graph, graph.phase, fastest),
    }


def fastest_ns(problem: Problem) -> Int64[np.ndarray, " ops"]:
    """What each op lasts on its fastest allowed device; where none is allowed, on the fastest of all."""
    fastest = np.where(problem.allowed, problem.time_ns, np.iinfo(np.int64).max).min(axis=1)
    return np.where(problem.allowed.any(axis=1), fastest, problem.time_ns.min(axis=1))


def shares(graph: ComputationGraph, column: Categorical, time_ns: np.ndarray) -> list[dict[str, Any]]:
    """Ops, flops, work and persistent bytes for each value of a column,
    most work first; `null` is for ops without a value.
    """
    rows = column.index + 1  # none comes first
    totals = {
        "ops": np.ones(graph.num_ops, dtype=np.int64),
        "flops": graph.flops,
        "work_ns": time_ns,
        "persistent_bytes": graph.persistent_bytes,
    }
    sums = {name: np.zeros(len(column.values) + 1, dtype=np.int64) for name in totals}
    for name, values in totals.items():
        np.add.at(sums[name], rows, values)
    entries = [
        {"value": value} | {name: int(total[row]) for name, total in sums.items()}
        for row, value in enumerate((None, *column.values))
        if sums["ops"][row]
    ]
    return sorted(entries, key=lambda share: -share["work_ns"])
