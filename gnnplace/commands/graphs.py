"""`gnnplace graphs list|show|import|synthetic`: the corpus."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from gnnplace.commands import inputs, synthetic_graph
from gnnplace.commands.graph_summary import fastest_ns, summary
from gnnplace.commands.usage import DONE
from gnnplace.corpus import manifest
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources
from gnnplace.version import VERSION

BUILDER = "gnnplace graphs import"
LISTED = ("name", "family", "lineage", "split", "mode", "source", "ops", "edges", "licence", "sha256")
MOST_KINDS = 15


def main(chosen: argparse.Namespace) -> int:
    """Does what the action says."""
    return {"list": _list, "show": _show, "import": _import, "synthetic": synthetic_graph.main}[chosen.action](chosen)


def _list(chosen: argparse.Namespace) -> int:
    entries = [entry.model_dump(include=set(LISTED)) for entry in manifest.entries()]
    if chosen.json:
        terminal.print_json(entries)
    else:
        columns = ("name", "family", "split", "mode", "ops", "edges", "source", "licence")
        terminal.print_table(columns, [[str(entry[column]) for column in columns] for entry in entries])
    return DONE


def _show(chosen: argparse.Namespace) -> int:
    problem = inputs.problem(chosen)
    if chosen.picture is not None:
        _draw(chosen.picture, problem)
    found = summary(problem)
    if chosen.json:
        terminal.print_json(found)
    else:
        _print(found)
    return DONE


def _draw(path: str, problem: Problem) -> None:
    from gnnplace.report.graph_picture import write_graph_picture  # matplotlib takes a second to import

    write_graph_picture(path, problem.graph, fastest_ns(problem))


def _print(found: dict[str, Any]) -> None:
    rows = [
        ("ops", f"{found['ops']:,}, of them {found['ops_without_kernel']:,} without a kernel"),
        ("edges", f"{found['edges']:,}, of them {found['control_edges']:,} control"),
        ("arithmetic", f"{found['flops'] / 1e9:,.1f} GFLOP"),
        ("parameters and optimiser", terminal.mebibytes(found["persistent_bytes"])),
        ("outputs, aliases not counted", terminal.mebibytes(found["output_bytes"])),
        ("largest workspace", terminal.mebibytes(found["largest_workspace_bytes"])),
        ("work, fastest devices", terminal.milliseconds(found["work_ns"])),
        ("critical path, free transfers", terminal.milliseconds(found["critical_path_ns"])),
        ("work / critical path", f"{found['parallelism']:.2f}"),
        ("bound of any placement", terminal.bounded(found["bound_ns"], found["bound"], None)),
    ]
    terminal.print_table((f"{found['name']} on {found['cluster']}", ""), rows)
    _print_shares("kind", found["kinds"])
    _print_shares("phase", found["phases"])


def _print_shares(what: str, shares: list[dict[str, Any]]) -> None:
    rows = [
        (share["value"] or terminal.NONE, f"{share['ops']:,}", f"{share['flops'] / 1e9:,.1f}", terminal.milliseconds(share["work_ns"]))
        for share in shares[:MOST_KINDS]
    ]
    title = f"the {MOST_KINDS} of {len(shares)} with most work" if len(shares) > MOST_KINDS else None
    terminal.print_table((what, "ops", "GFLOP", "work"), rows, title)


def _import(chosen: argparse.Namespace) -> int:
    manifest.check_writable()
    graph = sources.graph_file(chosen.file, inputs.reading(chosen))
    if chosen.name is not None:
        graph = replace(graph, name=chosen.name)
    about = {name: getattr(chosen, name) for name in ("family", "lineage", "source", "licence", "split", "mode")}
    entry = manifest.add(graph, builder=BUILDER, builder_version=f"gnnplace {VERSION}", replaces=False, **about)
    terminal.say(f"{entry.name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}")
    return DONE
