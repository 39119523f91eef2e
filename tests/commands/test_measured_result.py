"""What a run of noisy measurements comes to: who was lucky once does not win."""

from dataclasses import replace

import numpy as np
from support.fake_workload import CHAINS

from gnnplace.execution.evaluator import MeasuredEvaluator
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.measured import FINALISTS, compared
from gnnplace.training.update.best import Best
from gnnplace.training.update.lesson import Lesson

SPLIT = (0, 0, 0, 1, 1, 1)  # what the simulator would choose
OWN = [(0, 0, 1, 1, 1, 1), (0, 1, 1, 1, 1, 1), (1, 0, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0), (1, 1, 1, 1, 0, 0), (1, 1, 1, 1, 1, 0)]


def placed(device):
    return Placement(np.array(device, dtype=np.int32))


class Noisy(MeasuredEvaluator):
    """Each placement has a time that it showed once, and one that it shows whenever it is measured again."""

    def __init__(self, once, again, heuristics=(SPLIT,), broken=()):
        self.once, self.again, self.heuristics, self.broken = once, again, heuristics, broken
        self.compared = []

    def __call__(self, problem, placements):
        pairs = zip(placements, simulate(problem, placements), strict=True)
        return [replace(result, step_time_ns=self.once[self.key(problem, placement)]) for placement, result in pairs]

    def key(self, problem, placement):
        return tuple(placement.device.tolist())

    def measured(self, problem, by=None):
        return [placed(device) for device in self.once if by is None or (device in self.heuristics) == (by == "heuristics")]

    def compare(self, problem, placements, purpose):
        devices = [self.key(problem, placement) for placement in placements]
        self.compared.append((purpose, devices))
        if set(devices) & set(self.broken):
            raise MeasurementError("crash", "it broke")
        return [[self.again[device]] * 30 for device in devices]


def run(evaluate, best):
    return compared(Lesson(CHAINS, 1), Best(placed(best), evaluate.once[best], "sample"), evaluate)


ONCE = dict(zip([SPLIT, *OWN], [100, 90, 96, 95, 94, 97, 99], strict=True))
AGAIN = dict(zip([SPLIT, *OWN], [103, 110, 105, 100, 102, 104, 1], strict=True))


def test_the_policys_best_is_the_winner_of_a_second_round():
    evaluate = Noisy(ONCE, AGAIN)
    found, winner = run(evaluate, OWN[0])
    (first, finalists), (second, pair) = evaluate.compared
    assert (first, set(finalists), len(finalists)) == ("finalists", set(OWN[:5]), FINALISTS)  # not the slowest, nor what a heuristic found
    assert (second, pair) == ("comparison", [OWN[2], SPLIT])
    assert winner.device.tolist() == list(OWN[2])
    assert (found.candidates, found.outcome, found.same, found.policy_ns.median, found.faster.median) == (7, "ok", False, 100, 1.03)
    assert found.verdict == "improved over the simulator's choice"


def test_of_equals_the_one_that_was_the_best_stays():
    evaluate = Noisy(ONCE, dict.fromkeys(AGAIN, 100))
    found, winner = run(evaluate, OWN[3])
    assert winner.device.tolist() == list(OWN[3]) and found.verdict == "no difference from the simulator's choice shown"


def test_a_policy_that_finds_the_simulators_choice_has_the_same():
    found, winner = run(Noisy(ONCE | {SPLIT: 93}, AGAIN | {SPLIT: 99}, heuristics=()), OWN[0])
    assert found.same and winner.device.tolist() == list(SPLIT)


def test_a_heuristics_placement_that_is_the_policys_best_stands_alone():
    evaluate = Noisy({SPLIT: 100}, {SPLIT: 100})
    found, winner = run(evaluate, SPLIT)
    assert found.same and not evaluate.compared and winner.device.tolist() == list(SPLIT)


def test_without_a_second_round_the_fastest_at_first_sight_is_compared_and_that_is_said():
    found, winner = run(Noisy(ONCE, AGAIN, broken=(OWN[4],)), OWN[0])
    assert (found.outcome, found.finalists, winner.device.tolist()) == ("ok", "crash: it broke", list(OWN[0]))
    assert found.policy_ns.median == AGAIN[OWN[0]] and found.line().endswith("(7 placements measured; not measured again: crash: it broke)")


def test_a_comparison_that_fails_is_said_and_the_winner_stays():
    found, winner = run(Noisy(ONCE, AGAIN, broken=(SPLIT,)), OWN[0])
    assert (found.outcome, found.finalists, winner.device.tolist()) == ("crash: it broke", "ok", list(OWN[2]))
    assert found.verdict == "not compared: crash: it broke"
