"""How many updates a policy learns from in a second: the shipped configurations on one problem of the corpus, on each device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from time import monotonic_ns
from typing import Any

import lightning
import torch

from experiments.training import config_of
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.placement import Placement
from gnnplace.problems import NS_PER_S, Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate, usable_cores
from gnnplace.training.run import assemble

GRAPH, CLUSTER = "nmt-2", "k40-2"
CONFIGURATIONS = {"hierarchical, published": ("hierarchical", "published"), "unit-placer, tuned": ("unit-placer", "tuned")}
WARM_UP, TIMED = 2, 5
NEVER = 10**6


class Clock(lightning.Callback):
    """The time of each update, and what of it the simulator took: that runs on the CPU's cores wherever the policy computes."""

    def __init__(self) -> None:
        self.update_ns: list[int] = []
        self.simulator_ns: list[int] = []

    def evaluate(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        began = _now_ns()
        results = simulate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        self.simulator_ns[-1] += _now_ns() - began
        return results

    def on_train_batch_start(self, *update: object) -> None:
        self.simulator_ns.append(0)
        self.update_ns.append(-_now_ns())

    def on_train_batch_end(self, *update: object) -> None:
        self.update_ns[-1] += _now_ns()


def throughput() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and figures of each configuration on the GPU, where there is one, and on all cores."""
    problem = roofline.problem(manifest.graph(GRAPH), clusters.cluster(CLUSTER))
    for name in CONFIGURATIONS:
        for device in ("gpu", "cpu") if torch.cuda.is_available() else ("cpu",):
            yield f"{name}, {device}", _measured(name, problem, device)


def _measured(name: str, problem: Problem, device: str) -> dict[str, Any]:
    """Updates by policy gradient: samples, their replay, backward pass and Adam. No pre-training, no greedy decoding."""
    knobs = {"updates": WARM_UP + TIMED, "grouping.updates": 0, "warm_start.updates": 0, "greedy_every": NEVER, "checkpoint_every": NEVER}
    overrides = [f"--training.{knob}={value}" for knob, value in knobs.items()]
    config, clock = config_of(*CONFIGURATIONS[name], [*overrides, f"--trainer.accelerator={device}"]), Clock()
    torch.set_num_threads(usable_cores())
    assemble.train(config, [problem], [None], clock.evaluate, callbacks=[clock])
    timed = list(zip(clock.update_ns, clock.simulator_ns, strict=True))[WARM_UP:]
    policy_ns = median(update - simulator for update, simulator in timed)
    return {
        "problem": f"{GRAPH} on {CLUSTER}", "device": torch.cuda.get_device_name(0) if device == "gpu" else f"{usable_cores()} cores",
        "samples": config.training.samples, "warm_up": WARM_UP, "timed": TIMED, "updates_per_s": NS_PER_S / policy_ns,
        "simulator_ns": median(simulator for _, simulator in timed), "update_ns": clock.update_ns,
    }  # fmt: skip


def _now_ns() -> int:
    """The time once the GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return monotonic_ns()
