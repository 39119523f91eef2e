"""`gnnplace graphs list|show|import|synthetic`: the corpus."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, get_args

from gnnplace.choices import FAMILIES
from gnnplace.commands import options, values
from gnnplace.commands.usage import DONE, Parser, importing, parsed_action
from gnnplace.corpus.splits import Split
from gnnplace.report import terminal
from gnnplace.version import VERSION

PURPOSE = (
    "The corpus: list its graphs, show one, import one from a file, make a synthetic one whose ops have the costs of "
    "ops of the corpus."
)
BUILDER = "gnnplace graphs import"
LISTED = ("name", "family", "lineage", "split", "mode", "source", "ops", "edges", "licence", "sha256")
MOST_KINDS = 15


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments of an action, whose name is `action`."""
    parsers = {"list": _list_parser, "show": _show_parser, "import": _import_parser, "synthetic": _synthetic_parser}
    return parsed_action("graphs", PURPOSE, parsers, arguments)


def _list_parser() -> Parser:
    parser = Parser("graphs list", "The graphs of the corpus.")
    options.add_json_argument(parser)
    return parser


def _show_parser() -> Parser:
    parser = Parser(
        "graphs show",
        "The size, work and kinds of ops of a graph, and the most that its placement on a cluster can gain.",
    )
    options.add_problem_arguments(parser, preset="k40-2")
    explained = "draw how many ops could run at once, and when each layer could run: .png, .svg or .pdf"
    options.add_file_argument(parser, "--picture", metavar="FILE", explained=explained)
    options.add_json_argument(parser)
    options.add_quiet_argument(parser)
    return parser


def _import_parser() -> Parser:
    parser = Parser("graphs import", "Adds the graph of a file to the corpus.")
    parser.add_argument("file", metavar="FILE", help="the file")
    options.add_reading_arguments(parser, mode=None)
    parser.add_argument(
        "--name", help="the name in the corpus; the graph's unless given, or the file's without its ending"
    )
    for option in ("family", "lineage", "source", "licence"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--split", choices=get_args(Split), required=True)
    return parser


def _synthetic_parser() -> Parser:
    parser = Parser(
        "graphs synthetic", "A synthetic graph as JSON: a drawn shape whose ops cost what ops of real graphs cost."
    )
    parser.add_argument("family", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--ops", type=values.count, required=True, metavar="N", help="how many ops")
    parser.add_argument("--seed", type=values.seed, default=0, help="another seed, another graph")
    parser.add_argument(
        "--width", type=int, help="ops side by side, or chains of a fork; the family's default unless given"
    )
    parser.add_argument("--density", type=float, help="mean number of edges per op")
    parser.add_argument("--blocks", type=int, help="how often a pattern is repeated")
    parser.add_argument(
        "--donors",
        nargs="+",
        metavar="GRAPH",
        help="graphs whose ops lend their costs; the training split unless given",
    )
    options.add_file_argument(parser, "-o", "--output", metavar="FILE", explained="the JSON file", required=True)
    return parser


def main(chosen: argparse.Namespace) -> int:
    """Runs the action."""
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
        from gnnplace.report import step_words
        from gnnplace.report.graph_summary import fastest_ns, summary
    problem = options.problem(chosen)
    if chosen.picture is not None:
        from gnnplace.report.graph_picture import write_graph_picture  # matplotlib takes a second to import

        write_graph_picture(chosen.picture, problem.graph, fastest_ns(problem))
    facts = summary(problem)
    if chosen.json:
        terminal.print_json(facts)
    else:
        _print(facts, step_words.named(problem.graph))
    return DONE


def _print(facts: dict[str, Any], name: str) -> None:
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
    terminal.print_table((f"{name} on {facts['cluster']}", ""), rows)
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
    """Writes a synthetic graph; equal arguments give equal graphs."""
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
