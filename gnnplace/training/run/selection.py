"""Problems that a configuration selects from the corpus, on named or drawn clusters; and exams.

A policy for unseen clusters trains on many of them. `drawn` draws a cluster from a distribution of machines that people
have, in numbers and with links that presets don't have. The same number always draws the same cluster. An exam is a
problem with the best heuristic's step time and the bound.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gnnplace.bounds.bounds import lower_bound
from gnnplace.choices import FAMILIES
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.config.run import SelectionConfig
from gnnplace.corpus import manifest
from gnnplace.corpus.synthetic import synthetic
from gnnplace.costs import roofline
from gnnplace.formats import atomic
from gnnplace.graph import ComputationGraph
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.training.update.lesson import Exam, labels
from gnnplace.transformations.parallelism import Parallelism

ONE_MICRO_BATCH = Parallelism()
CPU_NAME = "cpu:0"
# float32 and half-precision flops/s, memory bytes/s and bytes of accelerators, from entry to data-centre class, rounded
ACCELERATORS = (
    (4_000, 4_000, 290, 12), (9_000, 18_000, 480, 11), (10_000, 20_000, 720, 16), (15_000, 120_000, 900, 16),
    (19_000, 310_000, 1_550, 40), (60_000, 900_000, 3_300, 80),
)  # fmt: skip
MOST_ACCELERATORS = 8
SYNTHETIC_OPS = 200, 4000  # the range of sizes
MOST_DRAWN = 10**6  # numbers of clusters for synthetic graphs


def selected(config: SelectionConfig, seed: int, step: Parallelism = ONE_MICRO_BATCH) -> tuple[Problem, ...]:
    """The problems that a configuration selects, graph by graph: each graph's steps, and synthetic graphs.

    The steps are those of the configuration's micro-batches, or else `step`. The clusters drawn for a graph depend on
    its name and the seed. Raises ValueError for a graph without such a step.
    """
    clusters = [sources.cluster(name) for name in config.clusters] if config.splits else []
    problems, chosen = [], [entry for entry in manifest.entries() if _is_chosen(entry, config)]
    for entry in chosen:
        if clusters or config.drawn_clusters:
            first = zlib.crc32(f"{seed}/{entry.name}".encode())
            machines = [*clusters, *(drawn(first + number) for number in range(config.drawn_clusters))]
            for form in _steps(entry, config, step):
                graph = form.of(manifest.graph(entry.name))
                problems += [roofline.problem(graph, machine) for machine in machines]
    if config.splits and not chosen:
        raise ValueError("corpus: no graph is in these splits and lineages and small enough")
    donors = [manifest.graph(entry.name) for entry in chosen] if config.synthetic else []
    return (*problems, *(_synthetic(donors, seed, number) for number in range(config.synthetic if donors else 0)))


def counted(config: SelectionConfig) -> tuple[int, int]:
    """The number of problems of corpus graphs, and of synthetic ones; no graph is read."""
    chosen = [entry for entry in manifest.entries() if _is_chosen(entry, config)]
    steps = sum(len(_steps(entry, config, ONE_MICRO_BATCH)) for entry in chosen)
    return steps * (len(config.clusters) + config.drawn_clusters), config.synthetic if chosen else 0


def _steps(entry: manifest.Entry, config: SelectionConfig, step: Parallelism) -> tuple[Parallelism, ...]:
    """The steps of a graph, those above `most_ops` left out. Copies don't matter to a step of one micro-batch."""
    most = config.most_ops // entry.ops if config.most_ops else max(config.micro_batches, default=1)
    several = {
        Parallelism(number, copies) for number in config.micro_batches if number <= most for copies in config.copies
    }
    forms = {form if form.micro_batches > 1 else ONE_MICRO_BATCH for form in several}
    return tuple(sorted(forms, key=lambda form: (form.micro_batches, form.copies))) if config.micro_batches else (step,)


def _synthetic(donors: Sequence[ComputationGraph], seed: int, number: int) -> Problem:
    """A synthetic graph with the costs of two donors' ops, on a drawn cluster."""
    draw = np.random.default_rng([seed, number])
    lent = [donors[index] for index in draw.choice(len(donors), size=min(2, len(donors)), replace=False)]
    size = int(np.exp(draw.uniform(*np.log(SYNTHETIC_OPS))))
    graph = synthetic(FAMILIES[draw.integers(len(FAMILIES))], num_ops=size, seed=number, donors=lent)
    return roofline.problem(graph, drawn(int(draw.integers(MOST_DRAWN))))


def _is_chosen(entry: manifest.Entry, config: SelectionConfig) -> bool:
    of_lineage = entry.lineage not in config.without and (not config.lineages or entry.lineage in config.lineages)
    return entry.split in config.splits and of_lineage and (not config.most_ops or entry.ops <= config.most_ops)


def drawn(number: int) -> Cluster:
    """Cluster `number`: a CPU and 1 to 8 accelerators of one or two kinds, in one or two islands of fast links."""
    draw = np.random.default_rng([number, 0xC1])
    count = int(draw.integers(1, MOST_ACCELERATORS + 1))
    kinds = draw.choice(len(ACCELERATORS), size=1 if draw.random() < 0.7 else 2)
    split = int(draw.integers(1, count + 1)) if len(kinds) == 2 else count
    devices = [_cpu(draw)] + [_accelerator(index, ACCELERATORS[kinds[int(index >= split)]]) for index in range(count)]
    island = int(draw.integers(1, count + 1))
    host, near, far = (
        int(1e9 * np.exp(draw.uniform(np.log(low), np.log(high)))) for low, high in ((5, 30), (8, 300), (4, 25))
    )
    overhead_ns = int(draw.integers(1_000, 6_000))
    links = []
    for a, src in enumerate(devices):
        for b, dst in enumerate(devices):
            if a != b:
                bandwidth = host if 0 in (a, b) else near if (a <= island) == (b <= island) else min(near, far)
                links.append(Link(src.name, dst.name, bandwidth, overhead_ns, 8_000 if bandwidth != far else 15_000))
    return Cluster(f"drawn-{number}", tuple(devices), tuple(links))


def _cpu(draw: np.random.Generator) -> Device:
    gflops, gigabytes_per_s = int(draw.integers(300, 3_000)), int(draw.integers(40, 300))
    return Device(
        CPU_NAME, "cpu", 64 * 2**30, gflops * 10**9, gigabytes_per_s * 10**9, launch_ns=1_000, dispatch_ns=200
    )


def _accelerator(index: int, kind: tuple[int, int, int, int]) -> Device:
    single, half, gigabytes_per_s, gigabytes = kind
    rates = {
        "float32": single * 10**9,
        "float16": half * 10**9,
        "bfloat16": half * 10**9,
        "float64": single * 10**9 // 4,
    }
    return Device(
        f"gpu:{index}", "gpu", gigabytes * 10**9, rates, gigabytes_per_s * 10**9, launch_ns=5_000, dispatch_ns=200
    )


def exams(problems: Sequence[Problem], kept: Path | None, say: Callable[[str], object]) -> tuple[Exam, ...]:
    """The problems as exams.

    What their heuristics take is looked up in the file `kept`, if there is one, and written there.
    """
    step_times = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    all_exams = []
    for problem, label in zip(problems, labels(problems), strict=True):
        key = f"{problem.graph.sha256}/{problem.cluster.sha256}"
        if key not in step_times:
            say(f"{label}: looking for the best heuristic's placement")
            (step,) = simulate(problem, [planners.best_heuristic(problem, simulate)])
            step_times[key] = step.step_time_ns
        all_exams.append(Exam(problem, label, step_times[key], lower_bound(problem)))
    if kept is not None:
        atomic.write_text(kept, json.dumps(step_times, indent=1) + "\n")
    return tuple(all_exams)
