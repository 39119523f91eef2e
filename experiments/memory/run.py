"""When memory decides: who finds a placement that fits, where nothing fits and that is proved, and what memory costs in step time.

    python -m experiments.memory.run --stage presets     # every graph of the corpus on every preset
    python -m experiments.memory.run --stage scaled      # 20 graphs on presets with shares of their memories
    python -m experiments.memory.run --stage tables      # of what there is

A problem is *placed* where somebody finds a placement that fits, *impossible* where it is proved that there is none, else *open*. Where all
memories suffice for every planner (`experiments/room` has their steps) a search is not asked. A second is one of a core's work, whatever
else the machine does. Resumable: finished cells are kept.
"""

from __future__ import annotations

import argparse
import random
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import gnnplace as gp
from experiments import cells, output, results
from experiments.cells import Cell
from experiments.problems import heuristics_ns, time_ns
from experiments.room.run import compiled, known, worked_s
from gnnplace.baselines.cp_sat.exact import Limit, exact
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import least_times
from gnnplace.bounds.shortage import shortage
from gnnplace.corpus import clusters, manifest
from gnnplace.portfolio import portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources

HERE = Path(__file__).resolve().parent / "results"
SEED, SECONDS, LONG = 0, 10.0, 6.0  # `best` has so many seconds, and once so many times as many: the best known placement
SHARES = (0.9, 0.7, 0.5, 0.35, 0.25)
STATES = ("placed", "impossible", "open")
UNLIMITED = 1000.0  # times the memory
GRAPHS = (
    "amoebanet-a", "bert-large", "gpt2-medium", "llama-1b", "moe-8e", "vit-l16", "whisper-base", "t5-base",
    "inception-v3-b32", "resnet-152", "densenet-201", "retinanet",
    "nmt-4", "gnmt-4", "rnnlm-8", "deepspeech2",
    "stable-diffusion", "wavenet-4x36", "mamba2-130m", "two-tower",
)  # fmt: skip


def problem_of(graph: str, preset: str, share: float) -> Problem:
    """A graph on a preset with a share of each memory, rounded down."""
    cluster = sources.cluster(preset)
    devices = tuple(replace(device, memory_bytes=int(share * device.memory_bytes)) for device in cluster.devices)
    return gp.problem(graph, replace(cluster, devices=devices))


def best(problem: Problem, seconds: float) -> Cell:
    """What `best` finds in so many seconds of a core, null where nothing of it fits."""
    compiled()
    winner = portfolio.portfolio(problem, simulate, Budget(seconds=seconds, clock=worked_s), portfolio.Options(seed=SEED))
    return {"ns": time_ns(problem, winner.placement), "winner": winner.planner}


def cell(graph: str, preset: str, share: float) -> Cell:
    """Who places a problem, or the proof that nobody can. A few of those that some planner does not place get more work."""
    problem = problem_of(graph, preset, share)
    if (proof := shortage(problem)) is not None:
        return {"proof": str(proof)}
    found: Cell = {"heuristics_ns": heuristics_ns(problem)}
    if None not in found["heuristics_ns"].values():
        return found
    found["best"] = best(problem, SECONDS)
    name = f"{graph}/{preset}/{share}"
    if share == 1.0 or one_in(3, name):
        limit = Limit(SECONDS, deterministic=False)
        found["exact_ns"] = time_ns(problem, exact(problem, simulate, least_times=least_times, limit=limit))
        found["unlimited"] = best(problem_of(graph, preset, UNLIMITED * share), SECONDS)
    if share != 1.0 and one_in(6, name):
        found["long"] = best(problem, LONG * SECONDS)
    return found


def one_in(number: int, name: str) -> bool:
    """A choice of one in so many names that depends on nothing but the name."""
    return zlib.crc32(name.encode()) % number == 0


def state(found: Cell) -> str:
    """`placed`, `impossible` or `open`."""
    if "proof" in found:
        return "impossible"
    return "open" if known_ns(found) is None else "placed"


def known_ns(found: Cell) -> int | None:
    """The step time of the fastest placement that anybody found."""
    times = [*found["heuristics_ns"].values(), found.get("exact_ns"), *(found[by]["ns"] for by in ("best", "long") if by in found)]
    return min((time for time in times if time is not None), default=None)


def tight(name: str) -> bool:
    """Whether some planner's placement did not fit a preset, when `experiments/room` asked."""
    return None in known()[name]["heuristics_ns"].values()


def not_asked(found: Mapping[str, Cell]) -> int:
    """How many problems of the presets of these cells every planner places."""
    asked = {name.rpartition("/")[2] for name in found}
    return sum(name.rpartition("/")[2] in asked and name not in found for name in known())


def presets(graphs: Sequence[str], names: Sequence[str]) -> dict[str, Cell]:
    asked = [(graph, preset) for graph in graphs for preset in names if tight(f"{graph}/{preset}")]
    jobs = {"/".join(pair): (cell, (*pair, 1.0)) for pair in asked}
    return cells.compute(HERE / "presets.json", jobs, {"seconds": SECONDS})


def scaled(graphs: Sequence[str], names: Sequence[str]) -> dict[str, Cell]:
    asked = [(graph, preset, share) for share in SHARES for graph in graphs for preset in names]
    random.Random(SEED).shuffle(asked)  # what is finished first is like the rest
    jobs = {"/".join(map(str, each)): (cell, each) for each in asked}
    return cells.compute(HERE / "scaled.json", jobs, {"seconds": SECONDS, "long": LONG})


def table(found: Mapping[str, Cell], others: int = 0) -> str:
    """How often each is placed, and what memory costs. `others` are problems that every planner places."""
    lines = [f"{len(found) + others} problems: {_counts(found, others)}."]
    tight = [each for each in found.values() if "best" in each]
    asked = dict.fromkeys(name for each in tight for name in each["heuristics_ns"])
    rows = [[name, str(sum(each["heuristics_ns"].get(name) is not None for each in tight)), str(len(tight))] for name in asked]
    solved = [each["exact_ns"] is not None for each in tight if "exact_ns" in each]
    rows.append(["exact (CP-SAT), 10 s", str(sum(solved)), str(len(solved))])
    rows.append(["best, 10 s", str(sum(each["best"]["ns"] is not None for each in tight)), str(len(tight))])
    lines += ["", "Of those that some planner does not place and that are not proved impossible:", ""]
    lines.append(results.markdown_table(["planner", "fits", "of"], rows))
    fits = [each for each in tight if each["best"]["ns"]]
    ratios = [each["best"]["ns"] / time for each in fits if "exact_ns" in each and (time := known_ns(each))]
    costs = [each["best"]["ns"] / each["unlimited"]["ns"] for each in fits if "unlimited" in each]
    lines += [
        f"{name}: {statistics.geometric_mean(shares):.3f} (geometric mean of {len(shares)}; most {max(shares):.2f})\n"
        for name, shares in (("`best` over the best known placement", ratios), ("`best` over `best` without limits", costs))
        if shares
    ]
    left = [f"- {name}: {each.get('proof', 'open')}" for name, each in sorted(found.items()) if state(each) != "placed"]
    return "\n".join([*lines, *left]) + "\n"


def by_share(found: Mapping[str, Cell]) -> str:
    """How many problems are placed with each share of the memories."""
    of = {share: {name: each for name, each in found.items() if name.endswith(f"/{share}")} for share in SHARES}
    rows = [[str(share), *(str(_count(each, what)) for what in STATES)] for share, each in of.items()]
    return results.markdown_table(["share of the memories", *STATES], rows)


def _counts(found: Mapping[str, Cell], others: int) -> str:
    return ", ".join(f"{_count(found, what) + others * (what == 'placed')} {what}" for what in STATES)


def _count(found: Mapping[str, Cell], what: str) -> int:
    return sum(state(each) == what for each in found.values())


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--stage", choices=["presets", "scaled", "tables"], default="tables")
    parser.add_argument("--graphs", nargs="*", help="graphs of the corpus; all (scaled: 20 of all lineages) by default")
    parser.add_argument("--clusters", nargs="*", default=clusters.names(), help="cluster presets; all by default")
    chosen = parser.parse_args()
    _compute(chosen)
    found = {name: results.load(HERE / f"{name}.json") for name in ("presets", "scaled")}
    texts = []
    for name, document in found.items():
        if document:
            others = not_asked(document["cells"]) if name == "presets" else 0
            texts.append(f"## {name}\n\n{by_share(document['cells'])}\n\n" if name == "scaled" else f"## {name}\n\n")
            texts[-1] += table(document["cells"], others)
    HERE.mkdir(exist_ok=True)
    output.show("\n".join(texts), found, chosen, HERE / "memory.md")


def _compute(chosen: argparse.Namespace) -> None:
    if chosen.stage == "presets":
        presets(chosen.graphs or manifest.names(), chosen.clusters)
    elif chosen.stage == "scaled":
        scaled(chosen.graphs or GRAPHS, chosen.clusters)


if __name__ == "__main__":
    main()
