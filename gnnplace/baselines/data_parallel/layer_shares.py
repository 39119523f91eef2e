"""Data parallelism with shares by layer: each run of layers is divided among the devices as that suits them.

Whole micro-batches leave slow cards idle or let them end last, and a ring over slow links sums every gradient. Here a
run of layers has shares of its own, also 0: a slow card works in the layers that suit it, a micro-batch is cut where
that evens out loads (McNaughton's wrap-around rule, Management Science, 1959), and nodes far from each other may have
different layers. Tables and experts may have one home each, which evens out the time of what they work and send.
Activations go over and their gradients come back; no weight travels.

An estimate of loads chooses among many shares of runs, the simulator among the best of these. From the best step, runs
get other shares as long as that is faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import chain, combinations, islice, product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.baselines.data_parallel.family_names import family_names
from gnnplace.baselines.data_parallel.forms import copies_of, original
from gnnplace.baselines.data_parallel.layer_estimate import LayerEstimate
from gnnplace.baselines.data_parallel.layer_row import RowOfLayers, layer_row
from gnnplace.baselines.data_parallel.share_vectors import share_vectors
from gnnplace.baselines.data_parallel.turns import by_turn
from gnnplace.baselines.rings import size_of_nodes
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal, Score, score
from gnnplace.step_forms import reformed
from gnnplace.transformations.families import assigned
from gnnplace.transformations.replicas import replicas

ALIKE = 3  # steps with shares of the same kind that are simulated together
FEWEST, MOST, SIMULATED_OPS = 4, 12, 160_000  # steps that are simulated together, and their ops
ROUNDS, BEAM = 3, 3  # from the best few steps, others are looked for beside them
TOGETHER = 256  # steps that are estimated together

Shares = Int64[np.ndarray, "layers devices"]


def layer_shares(problem: Problem, evaluate: Evaluator) -> Proposal | None:
    """The best step with shares by layer; None if none beats whole micro-batches, as of equal cards without tables."""
    row = layer_row(problem)
    if not len(row.others):
        return None
    search = SharesSearch(problem, evaluate, row)
    steps, looked = search.best(search.first()), set[int]()
    for _ in range(ROUNDS):
        few = [each for each in sorted(steps, key=_by_score)[:BEAM] if id(each) not in looked]
        looked |= set(map(id, few))
        steps += search.best(chain(*(search.beside(each.shares) for each in few)))
    whole, best = ddp(problem, evaluate), min(steps, key=_by_score, default=None)
    return best.proposal if best is not None and best.score < _score(whole, evaluate) else None


class SimulatedShares(NamedTuple):
    """Shares of all layers, the step with them, and its score."""

    shares: Shares
    proposal: Proposal
    score: Score


def _by_score(simulated: SimulatedShares) -> Score:
    return simulated.score


class SharesSearch:
    """One search. A candidate is the shares of all layers, and a word for shares of its kind."""

    def __init__(self, problem: Problem, evaluate: Evaluator, row: RowOfLayers) -> None:
        self._problem, self._evaluate, self._row = problem, evaluate, row
        self._number = copies_of(problem.graph).micro_batches
        self._estimate = LayerEstimate(problem.cluster, row, self._number)
        self._vectors = share_vectors(problem.cluster, row.devices, row.work_ns.sum(axis=0), self._number)
        self._cuts = row.cuts()
        self._seen = set[bytes]()
        self._most = max(FEWEST, min(MOST, SIMULATED_OPS // problem.num_ops))

    def first(self) -> Iterator[tuple[Shares, Hashable]]:
        """All layers with the same shares, and the first layers with other shares than the last; with homes or not."""
        for first, last in product(range(len(self._vectors)), repeat=2):
            for cut in self._cuts[1:-1] if first != last else self._cuts[-1:]:
                candidate = np.repeat(self._vectors[[first, last]], [cut, len(self._row.names) - cut], axis=0)
                yield candidate, (first, last)
                for among in self._homes(candidate):
                    yield self.with_homes(candidate, among), (first, last, "homes", among.tobytes())

    def beside(self, here: Shares) -> Iterator[tuple[Shares, Hashable]]:
        """These shares with others in one run of layers, and with homes."""
        others = np.isin(np.arange(len(here)), self._row.others)
        at_home = bool(self._row.single) and (here[~others].max(axis=1) == self._number).all()
        for among in self._homes(here):
            yield self.with_homes(here, among), "homes"
        for start, end in combinations(self._cuts, 2):
            for number, vector in enumerate(self._vectors):
                run = np.zeros(len(here), dtype=bool)
                run[start:end] = True
                there = here.copy()
                there[run & others if at_home else run] = vector
                yield there, number

    def _homes(self, here: Shares) -> Iterator[Bool[np.ndarray, " devices"]]:
        """The devices that may be homes: all, and those of the layers that send most to tables and experts."""
        if not self._row.single:
            return
        yield np.ones(here.shape[1], dtype=bool)
        near = np.isin(self._row.dst, np.concatenate(self._row.single))
        yield here[np.argmax(np.bincount(self._row.src[near], self._row.sent_bytes[near], len(here)))] > 0

    @cached_property
    def _single(self) -> tuple[Float[np.ndarray, "sets devices"], Float[np.ndarray, "sets devices"]]:
        """What each table and expert works and sends at a home."""
        row, number = self._row, self._number
        work = [number * row.work_ns[each].sum(axis=0) + row.update_ns[each].sum(axis=0) for each in row.single]
        sent = np.array([number * row.sent_by(each) for each in row.single])
        return np.array(work), sent[:, None] * self._estimate.ns_per_byte.sum(axis=1) / max(len(row.devices) - 1, 1)

    def with_homes(self, here: Shares, among: Bool[np.ndarray, " devices"]) -> Shares:
        """These shares with one home for each table and expert, where it would end first; those of most work first."""
        row, there, (work, sent) = self._row, here.copy(), self._single
        there[np.concatenate(row.single)] = 0
        load, link = np.where(among, row.loads(there[None])[0], np.inf), np.zeros(len(row.devices))
        for number in np.argsort(-work.min(axis=1), kind="stable").tolist():
            home = int(np.argmin(np.maximum(load + work[number], link + sent[number])))
            load[home] += work[number, home]
            link[home] += sent[number, home]
            there[row.single[number], home] = self._number
        return there

    def best(self, candidates: Iterator[tuple[Shares, Hashable]]) -> list[SimulatedShares]:
        """The candidates with the least estimates, simulated, and none twice."""
        every, estimates = list[tuple[Shares, Hashable]](), [np.zeros((2, 0))]
        while some := list(islice(candidates, TOGETHER)):
            every += some
            estimates.append(self._estimate.step_ns(np.array([each for each, _ in some])))
        used, tried = Counter[Hashable](), list[SimulatedShares]()
        for number in np.argsort(np.concatenate(estimates, axis=1), axis=1, kind="stable").T.ravel().tolist():
            here, word = every[number]
            if used[word] == ALIKE or len(tried) == self._most or here.tobytes() in self._seen:
                continue
            self._seen.add(here.tobytes())
            used[word] += 1
            if (proposal := self.proposal(here)) is not None:
                tried.append(SimulatedShares(here, proposal, _score(proposal, self._evaluate)))
        return tried

    def proposal(self, here: Shares) -> Proposal | None:
        """The step with these shares; None if it divides what a constraint keeps whole.

        Layers around others that have other shares keep those of the step.
        """
        row, copies = self._row, copies_of(self._problem.graph)
        used = here.any(axis=0)
        here, devices = here[:, used], row.devices[used]
        step = self._step_shares(here, row.work_ns[:, used].min(axis=1))
        families = family_names(dict(zip(row.names, map(tuple, here.tolist()), strict=True)), tuple(step.tolist()))
        size = size_of_nodes(self._problem.cluster, devices)
        graph = replicas(original(self._problem), step.tolist(), "whole", copies.shared, (), families, size)
        turn = _turns(step, [each for _, each in families if max(each) < self._number])
        device = devices[copies_of(graph).replica].astype(np.int32)
        form, placement = reformed(self._problem, graph), Placement(device, "given", by_turn(graph, turn))
        return Proposal(form, placement) if copies.part is None or check(form, placement) is None else None

    def _step_shares(self, here: Shares, work: Float[np.ndarray, " layers"]) -> Int64[np.ndarray, " replicas"]:
        """The shares in which most work is done among those without a 0; else some near those of most work."""
        vectors, number = np.unique(here[self._row.others], axis=0, return_inverse=True)
        by_work = np.argsort(-np.bincount(number.ravel(), work[self._row.others], len(vectors)), kind="stable")
        whole = by_work[(vectors[by_work] > 0).all(axis=1)]
        step = vectors[whole[0] if len(whole) else by_work[0]].copy()
        for replica in np.flatnonzero(step == 0).tolist():
            step[replica] += 1
            step[np.argmax(step)] -= 1
        return step


def _turns(
    step: Int64[np.ndarray, " replicas"], families: Sequence[tuple[int, ...]]
) -> Int64[np.ndarray, " micro_batches"]:
    """The turn of each micro-batch: first those that other replicas work on too, then those that stay on one."""
    replica = np.repeat(np.arange(len(step)), step)
    stays = np.ones(len(replica), dtype=bool)
    for each in families:
        stays &= assigned(step.tolist(), each) == replica
    rank = np.concatenate([np.arange(share) for share in step])
    turn = rank + len(replica)
    moved = np.flatnonzero(~stays)
    turn[moved[np.lexsort((moved, rank[moved]))]] = np.arange(len(moved))
    return turn


def _score(proposal: Proposal, evaluate: Evaluator) -> Score:
    return score(proposal.problem, evaluate(proposal.problem, [proposal.placement])[0])
