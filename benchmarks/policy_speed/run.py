"""How long do policies take to draw a sample and to learn from it? Seconds of the policy itself, beside the bar; simulations don't count.

    python -m benchmarks.policy_speed.run [--repeats N] [--threads N] [--graphs GRAPH ...] [POLICY/SETTINGS ...]

A sample is one episode of one sample. *Forward* draws it; *backward* scores its decisions again, as an update does, and takes the gradient
of their log-probability, and of a critic's values. What a policy computes once for a problem (*once*) and one sample more come before.
Policies take turns; the median of the processor time of all threads counts, which the clock on the wall exceeds where a machine does
something else and undercuts where two cores work. The bar is for a placement that is evaluated: an episode proposes one or several.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from experiments import results
from experiments.problems import problem_of
from gnnplace.config.files import read_settings, shipped
from gnnplace.placement import Placement
from gnnplace.policies.protocol import asks
from gnnplace.policies.registry import POLICIES
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.testing import built
from gnnplace.training.update.rollout import Proposals, replay, rollout

HERE = Path(__file__).resolve().parent
GRAPHS, CLUSTER = ("nmt-2", "mobilenet-v2"), "k40-2"  # 11,013 ops and 1,160
BARS_S, BAR_S = {"go": 3.0}, 1.0  # of a placement that is evaluated, at about 10,000 ops


class Clocks(NamedTuple):
    """Seconds of processor time, of all threads, and of the clock on the wall."""

    processor: float
    wall: float

    @classmethod
    def now(cls) -> Clocks:
        return cls(time.process_time(), time.perf_counter())

    def since(self, before: Clocks) -> Clocks:
        return Clocks(self.processor - before.processor, self.wall - before.wall)


class Untimed:
    """An evaluator that keeps what it took, which is not the policy's."""

    def __init__(self) -> None:
        self.took = Clocks(0.0, 0.0)

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        before = Clocks.now()
        found = simulate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        self.took = Clocks(*(sum(pair) for pair in zip(self.took, Clocks.now().since(before), strict=True)))
        return found


class Timed:
    """A policy with random weights on one problem, and what its samples took."""

    def __init__(self, name: str, problem: Problem) -> None:
        config = read_settings(*name.split("/"))
        self.kind, self.problem, self.draws = config.policy.kind, problem, 0
        self.policy = built(config.policy, problem)
        before = Clocks.now()
        self.policy.reset(problem, 1)
        self.once = Clocks.now().since(before)
        self.sizes: dict[str, int] = {}
        self.sample()
        self.forward: list[Clocks] = []
        self.backward: list[Clocks] = []

    def sample(self) -> tuple[Clocks, Clocks]:
        """What drawing a sample takes, and learning from it; a sample is drawn with a seed of its own."""
        tape, evaluate = Tape("sample", 1, torch.Generator().manual_seed(self.draws)), Untimed()
        before = Clocks.now()
        episode = rollout(self.policy, self.problem, tape, self._feedback(evaluate))
        forward = Clocks.now().since(before).since(evaluate.took)
        before = Clocks.now()
        self._learn(tape, episode)
        backward = Clocks.now().since(before)
        worth = len(episode) if asks(self.policy).evaluates == "every" else 1
        self.sizes = {"steps": len(episode), "placements": worth, "decisions": sum(tape.decisions_by_step())}
        self.draws += 1
        return forward, backward

    def again(self) -> None:
        """One sample more."""
        for kept, took in zip((self.forward, self.backward), self.sample(), strict=True):
            kept.append(took)

    def _feedback(self, evaluate: Evaluator) -> Evaluator | None:
        return None if asks(self.policy).feedback == "none" else evaluate

    def _learn(self, tape: Tape, episode: Sequence[Proposals]) -> None:
        self.policy.zero_grad()
        scored = replay(self.policy, self.problem, tape, episode)
        loss = -scored.tape.log_probability().mean()
        if scored.values is not None:
            loss = loss + scored.values.square().mean()
        torch.autograd.backward(loss)

    def figures(self) -> dict[str, Any]:
        """Every second, and the bar of a placement that is evaluated."""
        seconds = {"once": self.once, "forward": self.forward, "backward": self.backward}
        return {"ops": self.problem.num_ops, "bar_s": BARS_S.get(self.kind, BAR_S)} | self.sizes | seconds


def names() -> list[str]:
    """Every policy with each of its settings: "hierarchical/tuned", ..."""
    return [f"{policy}/{settings}" for policy in POLICIES for settings in ("tuned", "published") if shipped(policy, settings).is_file()]


def timed(graph: str, chosen: Sequence[str], repeats: int) -> dict[str, Any]:
    """The figures of these policies on a graph, in turns."""
    problem = problem_of(graph, CLUSTER)
    policies = {name: Timed(name, problem) for name in chosen}
    for _ in range(repeats):
        for each in policies.values():
            each.again()
    return {name: each.figures() for name, each in policies.items()}


def table(document: dict[str, Any]) -> str:
    """A line for each graph and policy: medians of a sample, and of a placement that is evaluated beside its bar."""
    header = ["graph", "policy", "decisions", "once", "forward", "backward", "both, wall", "placements", "a placement", "at most"]
    lines = []
    for graph, policies in document["graphs"].items():
        for name, found in policies.items():
            forward, backward = (_median(found[part]) for part in ("forward", "backward"))
            each = (forward.processor + backward.processor) / found["placements"]
            seconds = (found["once"][0], forward.processor, backward.processor, forward.wall + backward.wall)
            bar = f"{found['bar_s']:g} s{'' if each <= found['bar_s'] else ', missed'}"
            row = [f"{value:.3f} s" for value in seconds]
            lines.append([graph, name, f"{found['decisions']:,}", *row, str(found["placements"]), f"{each:.3f} s", bar])
    return results.markdown_table(header, lines)


def _median(seconds: Sequence[Sequence[float]]) -> Clocks:
    return Clocks(*(median(each) for each in zip(*seconds, strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Times the policies, saves and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="*", help="rows whose names begin so; all unless given")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), help="of the corpus")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--name", default=HERE.name, help="the file in results/, without its ending")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    wanted = [name for name in names() if not chosen.policies or name.startswith(tuple(chosen.policies))]
    found = {graph: timed(graph, wanted, chosen.repeats) for graph in chosen.graphs}
    document = {"cluster": CLUSTER, "threads": chosen.threads, "graphs": found, "provenance": results.provenance(HERE)}
    results.save(chosen.results / f"{chosen.name}.json", document)
    print(table(document))


if __name__ == "__main__":
    main()
