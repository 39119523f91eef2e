"""The improver on steps of several micro-batches that it never saw, beside other searches at equal evaluations.

    python -m experiments.zero_shot.micro_batches [--seeds 2] [--show] [--json]

Problems are those of `policies` with several micro-batches. Parts: `together` and `free` from own starts, up to 256 evaluations; `sharded`
from the placement and in the order of fully sharded data parallelism, free copies, up to 1,000. All searches of a seed have one start.
Only `lists, then hill climbing` starts from random list schedules under the critical path, as all did before they drew stages and orders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import numpy as np

from experiments import cells, output, results
from experiments.cells import Cell
from experiments.encoders.intervals import Times, compared, geometric
from experiments.zero_shot.policies import Held, held_out
from experiments.zero_shot.run import Recorded
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.data_parallel.fsdp import fsdp
from gnnplace.baselines.own_starts import STARTS, own_start
from gnnplace.baselines.ranked_climb import DRAWN, path_estimate, ranked_climb
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import lower_bound
from gnnplace.corpus import manifest
from gnnplace.moves.ranking import read_ranking
from gnnplace.placement import Placement
from gnnplace.portfolio import searches
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

PATH = Path(__file__).resolve().parent / "results" / "micro_batches.json"
MARKS: Mapping[str, tuple[int, ...]] = {"together": (64, 256), "free": (64, 256), "sharded": (64, 256, 1000)}
UNLEARNED = ("hill climbing", "the estimate")
FROM_LISTS = "lists, then hill climbing"
Search = Callable[[Problem, Recorded, Placement, int, Budget], object]


def learned(problem: Problem, evaluate: Recorded, start: Placement, seed: int, budget: Budget) -> None:
    """The network and the estimate in turns, as `place` has them."""
    ranked_climb(
        problem, evaluate, np.random.default_rng(seed), start=start, budget=budget, schedule=start.schedule,
        ranks=[read_ranking(searches.HELD_OUT), path_estimate], drawn=searches.LEARNED_DRAWN,
    )  # fmt: skip


def alone(problem: Problem, evaluate: Recorded, start: Placement, seed: int, budget: Budget) -> None:
    """The network without the estimate."""
    ranked_climb(
        problem, evaluate, np.random.default_rng(seed), start=start, budget=budget, schedule=start.schedule,
        ranks=[read_ranking(searches.HELD_OUT)], drawn=searches.LEARNED_DRAWN,
    )  # fmt: skip


def plain(problem: Problem, evaluate: Recorded, start: Placement, seed: int, budget: Budget) -> None:
    """The estimate alone."""
    generator = np.random.default_rng(seed)
    ranked_climb(problem, evaluate, generator, start=start, budget=budget, schedule=start.schedule, drawn=DRAWN)


def climbed(problem: Problem, evaluate: Recorded, start: Placement, seed: int, budget: Budget) -> None:
    """Hill climbing."""
    hill_climb(problem, evaluate, np.random.default_rng(seed), start=start, budget=budget, schedule=start.schedule)


SEARCHES: Mapping[str, Search] = {"improver": learned, "the network alone": alone, "the estimate": plain, "hill climbing": climbed}


def cell(held: Held, part: str, seed: int) -> Cell:
    """What each search has after so many evaluations, those of its start among them."""
    problem, begun = held.problem(), Recorded()
    if part == "sharded":
        proposal = fsdp(held._replace(kind="together").problem(), simulate)
        problem, start = proposal.problem, proposal.placement
        begun(problem, [start])
    else:
        start = own_start(problem, begun, np.random.default_rng([seed, 1]), Budget(evaluations=MARKS[part][-1]))
    row: Cell = {
        "ops": problem.num_ops, "family": manifest.entry(held.graph).family, "bound_ns": int(lower_bound(problem)),
        "start_ns": begun.best_ns[-1] or None,
    }  # fmt: skip
    starts = dict.fromkeys(SEARCHES, (start, begun))
    if part != "sharded":
        listed = Recorded()
        source = list_schedules(problem, np.random.default_rng([seed, 1]))
        starts[FROM_LISTS] = fastest(problem, [source() for _ in range(STARTS)], listed), listed
    for name, (first, before) in starts.items():
        recorded, began = Recorded(before.best_ns), perf_counter()
        budget = Budget(evaluations=MARKS[part][-1] - len(recorded.best_ns))
        SEARCHES.get(name, climbed)(problem, recorded, first, seed, budget)
        row[name] = recorded.at(MARKS[part]) | {"seconds": round(perf_counter() - began, 3)}
    return row


def table(computed: Mapping[str, Cell]) -> str:
    """Each search over those that learn nothing, from the same starts, and over the bound, by part and evaluations."""
    header = ["", "evaluations", "over hill climbing", "over the better of it and the estimate", "over the bound", "seconds"]
    parts = []
    for part, marks in MARKS.items():
        by_problem: dict[str, list[Cell]] = {}
        for key, each in computed.items():
            if key.startswith(f"{part}/"):
                by_problem.setdefault(key.rpartition("/")[0], []).append(each)
        if by_problem:
            parts += [f"**{part}**, {len(by_problem)} problems\n", results.markdown_table(header, _lines(by_problem, marks)), ""]
    return "\n".join(parts)


def _lines(by_problem: Mapping[str, list[Cell]], marks: tuple[int, ...]) -> list[list[str]]:
    families = {label: each[0]["family"] for label, each in by_problem.items()}
    bound: Times = {label: [each[0]["bound_ns"]] for label, each in by_problem.items()}
    start: Times = {label: [one["start_ns"] for one in each] for label, each in by_problem.items()}
    lines = [["the start", "", "", "", str(geometric(compared(start, bound), families)), ""]]
    for name in [*SEARCHES, FROM_LISTS]:
        if name not in next(iter(by_problem.values()))[0]:
            continue
        seconds = np.mean([one[name]["seconds"] for each in by_problem.values() for one in each])
        for mark in marks:
            times, hills, estimates = (
                {label: [one[which][str(mark)] for one in each] for label, each in by_problem.items()} for which in (name, *UNLEARNED)
            )
            better: Times = {label: [_less(*pair) for pair in zip(hills[label], estimates[label], strict=True)] for label in hills}
            ratios = [str(geometric(compared(times, against), families)) for against in (hills, better, bound)]
            lines.append([name, str(mark), *ratios, f"{seconds:.2f}" if mark == marks[-1] else ""])
    return lines


def _less(first: int | None, second: int | None) -> int | None:
    return min(first or second or 0, second or first or 0) or None


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="only the table of the cells that are there")
    arguments = parser.parse_args()
    several = [held for held in held_out() if held.micro_batches > 1]
    jobs: dict[str, cells.Job] = {
        f"{part}/{held.graph}.{held.cluster}.{held.micro_batches}/{seed}": (cell, (held, part, seed))
        for part in MARKS
        for held in several
        if held.kind == {"sharded": "free"}.get(part, part)
        for seed in range(arguments.seeds)
    }
    settings = {"marks": {part: list(marks) for part, marks in MARKS.items()}, "searches": [*SEARCHES, FROM_LISTS]}
    computed = results.load(PATH)["cells"] if arguments.show else cells.compute(PATH, jobs, settings)
    text = table(computed)
    output.show(text, {"table": text}, arguments, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
