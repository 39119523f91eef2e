"""What the improver learns from: how many problems it needs, and which features and settings carry it.

    python -m experiments.zero_shot.learning training_graphs [--seeds N]     # 6, 12, 25, 50, 100 problems, and all
    python -m experiments.zero_shot.learning ablation [--seeds N]

Each cell trains an improver for `UPDATES` updates, all with as many pools of moves, on training and validation lineages, and then places
every third problem of `run`'s part `test` with 64 evaluations from own starts, by its network alone and in turns with the estimate. The
problems of a smaller number are among those of a larger one. Settings stay those of `configs/improver/tuned.yaml` but for what a row names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from experiments import cells, output, results
from experiments.zero_shot.run import HERE, ROOM, Recorded, problems, start_of, untrained
from experiments.zero_shot.table import interval
from gnnplace.baselines.ranked_climb import Rank, path_estimate, ranked_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.config.files import read_settings
from gnnplace.config.run import RunConfig, SelectionConfig
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.moves.columns import DRAWN, NAMES
from gnnplace.moves.ranking import read_ranking
from gnnplace.policies.improver.scorer import MoveScorer
from gnnplace.portfolio import searches
from gnnplace.sources import graphs as sources
from gnnplace.training.run import assemble
from gnnplace.training.run.selection import selected

UPDATES, PROBLEMS_PER_UPDATE, MOST_OPS, SYNTHETIC = 150, 3, 3000, 300
EVALUATIONS, EVERY = 64, 3
NUMBERS = (6, 12, 25, 50, 100)
FAMILIES = {  # the features of moves, by what they say
    "waits": [name for name in NAMES if name.startswith("chain")],
    "paths": ["path after", "path before", "path beyond step", "start later"],
    "loads": [name for name in NAMES if name.startswith(("load", "largest load", "squared", "idle"))],
    "transfers": [name for name in NAMES if name.startswith(("sent", "most on", "bytes", "inputs", "outputs"))],
    "slack": ["least slack", "mean slack", "span", "first start"],
    "draws": list(DRAWN),
}
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "one draw": ("--training.moves.best_of=1",),
    "shares of gains alone": ("--training.moves.best_of=1", "--training.moves.shared=100"),
    "starts on one device": ("--training.moves.lists=0",),
    "no hidden layer": ("--policy.hidden=0",),
    "presets alone": ("--corpus.drawn_clusters=0", "--corpus.synthetic=0"),
    "drawn clusters alone": ("--corpus.clusters=[]", "--corpus.synthetic=0"),
    "no synthetic graphs": ("--corpus.synthetic=0",),
}


def configured(changes: Sequence[str], seed: int) -> RunConfig:
    """The tuned settings, shorter, on graphs of up to `MOST_OPS`, with some changes."""
    ours = (
        f"--training.moves.updates={UPDATES}", f"--training.problems_per_update={PROBLEMS_PER_UPDATE}", "--training.threads=1",
        f"--corpus.most_ops={MOST_OPS}", f"--corpus.synthetic={SYNTHETIC}", "--tracking=none", f"--seed={seed}",
    )  # fmt: skip
    return read_settings("improver", "tuned", [*ours, *changes])


def cell(number: int, changes: tuple[str, ...], blind_to: str, seed: int) -> cells.Cell:
    """Trains on `number` problems (0 = all), blind to a family of features; then what it reaches on test problems."""
    config = configured(changes, seed)
    learned_from = selected(config.corpus, seed)
    if number:
        order = np.random.default_rng(seed).permutation(len(learned_from))
        learned_from = tuple(learned_from[each] for each in order[:number])
    begun = time.perf_counter()
    named = tuple((problem.graph.name, problem.cluster.name) for problem in learned_from)
    trained = assemble.untrained(replace(config, problems=named, corpus=SelectionConfig()), learned_from)
    scorer = trained.learner.policy.scorer
    assert isinstance(scorer, MoveScorer)
    if blind_to:
        _blind(scorer, FAMILIES[blind_to])
    assemble.fit(trained.learner, trainer=config.trainer)
    took, ranking = round(time.perf_counter() - begun, 1), scorer.ranking()
    return {
        "problems": len(learned_from),
        "training_s": took,
        "reached": _reached({"alone": [ranking], "in turns": [ranking, path_estimate]}, seed),
    }


def controls(checkpoint: str, seed: int) -> cells.Cell:
    """What these updates don't train: the estimate, an untrained network, and the shipped network without the test lineages."""
    shipped = read_ranking(checkpoint)
    ways = {"estimate": [path_estimate], "untrained": [untrained(shipped)], "shipped, in turns": [shipped, path_estimate]}
    return {"problems": 0, "training_s": 0.0, "reached": _reached(ways, seed)}


def _blind(scorer: MoveScorer, names: Sequence[str]) -> None:
    """The scorer sees these features as zero from when it has seen their range."""
    columns, fit_range = [(*NAMES, *DRAWN).index(name) for name in names], scorer.fit_range

    def blinded(rows: torch.Tensor) -> None:
        fit_range(rows)
        for bound in (scorer.low, scorer.high, scorer.mean):
            bound[columns] = 0.0

    scorer.fit_range = blinded  # type: ignore[method-assign]


def _reached(ways: Mapping[str, Sequence[Rank]], seed: int) -> dict[str, dict[str, int | None]]:
    """The best step time in ns after all evaluations, by way and problem; None where nothing fits."""
    found: dict[str, dict[str, int | None]] = {way: {} for way in ways}
    for graph, cluster in problems("test")[::EVERY]:
        assert isinstance(cluster, str)
        problem = roofline.problem(manifest.graph(graph), sources.cluster(cluster))
        first, begun = start_of(problem, seed, "own", EVALUATIONS)
        left = EVALUATIONS - len(begun.best_ns)
        for way, ranks in ways.items():
            recorded, generator = Recorded(begun.best_ns), np.random.default_rng(seed)
            ranked_climb(
                problem, recorded, generator, start=first, budget=Budget(evaluations=left), ranks=ranks, drawn=searches.LEARNED_DRAWN
            )
            found[way][f"{graph}/{cluster}"] = recorded.best_ns[-1] or None
    return found


def table(found: output.Document) -> str:
    """Step time over the best heuristic's by row: geometric means over problems and seeds, [95 % by bootstrap over families]."""
    room, lines = results.load(ROOM)["cells"], []
    rows = dict.fromkeys(key.rpartition("/")[0] for key in found["cells"])
    for row in rows:
        of = [each for key, each in found["cells"].items() if key.rpartition("/")[0] == row]
        for way in of[0]["reached"]:
            ratios = [
                (name.split("-")[0], ns / room[name]["heuristic_ns"]) for each in of for name, ns in each["reached"][way].items() if ns
            ]
            logs = np.log([ratio for _, ratio in ratios])
            low, high = interval([family for family, _ in ratios], logs)
            spread = " ".join(f"{_mean(each['reached'][way], room):.3f}" for each in of)
            seconds = round(float(np.median([each["training_s"] for each in of])))
            lines.append([row, str(of[0]["problems"]), way, f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]", spread, str(seconds)])
    return results.markdown_table(["row", "problems", "moves ranked by", "over the best heuristic", "by seed", "training, s"], lines)


def _mean(reached: Mapping[str, int | None], room: Mapping[str, Any]) -> float:
    return float(np.exp(np.mean([np.log(ns / room[name]["heuristic_ns"]) for name, ns in reached.items() if ns])))


def jobs_of(study: str, seed: int) -> dict[str, cells.Job]:
    """The rows of a study, without its controls."""
    if study == "training_graphs":
        return {f"{number or 'all'} problems/{seed}": (cell, (number, (), "", seed)) for number in (*NUMBERS, 0)}
    rows = {"tuned": (cell, (0, (), "", seed))}
    rows |= {name: (cell, (0, changes, "", seed)) for name, changes in SETTINGS.items()}
    rows |= {f"without {family}": (cell, (0, (), family, seed)) for family in FAMILIES}
    return {f"{name}/{seed}": job for name, job in rows.items()}


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("study", choices=("training_graphs", "ablation"))
    taken.add_argument("--seeds", type=int, default=2)
    chosen = taken.parse_args()
    jobs: dict[str, cells.Job] = {}
    for seed in range(chosen.seeds):
        jobs |= {f"controls/{seed}": (controls, (str(searches.HELD_OUT), seed))} | jobs_of(chosen.study, seed)
    settings = {
        "updates": UPDATES, "problems_per_update": PROBLEMS_PER_UPDATE, "most_ops": MOST_OPS, "synthetic": SYNTHETIC,
        "evaluations": EVALUATIONS, "test_problems": len(problems("test")[::EVERY]),
    }  # fmt: skip
    path = HERE / "results" / f"{chosen.study}.json"
    found = {"cells": cells.compute(path, jobs, settings), "settings": settings}
    output.show(table(found), settings, chosen, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
