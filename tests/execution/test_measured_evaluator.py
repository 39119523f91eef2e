"""The measuring evaluator and its ledger: what it finds, what fails, and that nothing is measured twice."""

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.fake_workload import CHAINS, STEP_NS, requests
from support.graphs import chains

from gnnplace.costs.roofline import problem
from gnnplace.execution.evaluator import LastingHost, MeasuredEvaluator
from gnnplace.execution.host import Host
from gnnplace.execution.ledger import Ledger
from gnnplace.execution.timing import PAPER, STEADY
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.result import Evaluator, metrics
from gnnplace.simulator.simulator import simulate

ONE, SPLIT, CUT = [0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]
TOO_LARGE, DEADLY, ODD = [1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]


def placed(device, schedule="critical-path", priority=None):
    return Placement(np.array(device, dtype=np.int32), schedule, None if priority is None else np.array(priority, dtype=np.int64))


@pytest.fixture
def made(tmp_path):
    """What makes an evaluator on the ledger of `tmp_path`, with a host of its own."""
    with ExitStack() as stack:

        def make(name="fragile", protocol=PAPER, hardware="a machine") -> MeasuredEvaluator:
            host = LastingHost(partial(Host, "support.fake_workload:load", f"{tmp_path}:{name}", 0, limit_s=600.0))
            stack.callback(host.close)
            return MeasuredEvaluator({CHAINS.graph.sha256: host}, simulate, Ledger(tmp_path / "ledger"), protocol, 600.0, hardware)

        yield make


def test_a_result_is_what_was_measured(made):
    evaluate = made()
    assert isinstance(evaluate, Evaluator)
    one, split, cut = evaluate(CHAINS, [placed(ONE), placed(SPLIT), placed(CUT)])
    (simulated,) = simulate(CHAINS, [placed(CUT)])
    assert [result.step_time_ns for result in (one, split, cut)] == [6 * STEP_NS + 2, 3 * STEP_NS + STEP_NS // 10 + 2, 3.5 * STEP_NS + 2]
    assert cut.busy_ns.tolist() == [3 * STEP_NS] * 2 and one.busy_ns.tolist() == [6 * STEP_NS, 0]
    assert split.peak_memory_bytes.tolist() == [3, 3] and one.infeasible is None
    assert (cut.transfers, cut.transferred_bytes, cut.schedule) == (simulated.transfers, simulated.transferred_bytes, "critical-path")
    assert metrics(CHAINS.cluster, one, 1)[:3] == (0.5, None, None)  # nobody saw into its channels
    (seen,), (expected,) = (each(CHAINS, [placed(CUT)], timeline=True) for each in (evaluate, simulate))
    assert seen.step_time_ns == cut.step_time_ns and seen.timeline.end_ns.tolist() == expected.timeline.end_ns.tolist()
    with pytest.raises(ValueError, match="fusion: a measured step runs each op by itself"):
        evaluate(CHAINS, [replace(placed(ONE), fusion=np.zeros(CHAINS.num_ops, np.int32))])


def test_nothing_is_measured_twice_by_this_evaluator_or_the_next(made, tmp_path):
    asked = [placed(ONE), placed(SPLIT), placed(ONE), placed(TOO_LARGE)]
    first = made()(CHAINS, asked)
    assert requests(tmp_path, "start") == 3
    again = made()(CHAINS, asked)
    assert (requests(tmp_path, "start"), requests(tmp_path, "load")) == (3, 1)  # the next one didn't even need a host
    assert [(r.step_time_ns, r.infeasible, r.busy_ns.tolist()) for r in again] == [
        (r.step_time_ns, r.infeasible, r.busy_ns.tolist()) for r in first
    ]


def test_a_failure_is_infeasible_with_its_outcome_and_a_host_that_died_is_opened_again(made, tmp_path):
    large, odd, deadly, one = made()(CHAINS, [placed(TOO_LARGE), placed(ODD), placed(DEADLY), placed(ONE)])
    assert large.infeasible == "out_of_memory: the first op is too large for device 1"
    assert odd.infeasible == "crash: ValueError: no such value"
    assert deadly.infeasible.startswith("crash: ") and "SIGSEGV" in deadly.infeasible
    assert (deadly.step_time_ns, deadly.peak_memory_bytes, deadly.feasible_ns) == (None, None, None)
    assert one.feasible_ns == 6 * STEP_NS + 2
    assert (requests(tmp_path, "load"), requests(tmp_path, "start")) == (3, 4)


@pytest.mark.parametrize(("memory_bytes", "infeasible"), [(3, None), (2, "out_of_memory: gpu:0 held 3 bytes; its memory is 2 bytes")])
def test_memory_is_what_was_measured_and_not_what_was_simulated(made, memory_bytes, infeasible):
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in CHAINS.cluster.devices)
    small = problem(CHAINS.graph, replace(CHAINS.cluster, devices=devices))
    assert simulate(small, [placed(SPLIT)])[0].infeasible.startswith("memory")
    (result,) = made()(small, [placed(SPLIT)])
    assert result.infeasible == infeasible and (result.step_time_ns is None) == (infeasible is not None)


def test_an_illegal_placement_is_never_started(made, tmp_path):
    unlinked = problem(CHAINS.graph, replace(CHAINS.cluster, links=()))
    (result,) = made()(unlinked, [placed(CUT)])
    assert "needs a link" in result.infeasible and result.step_time_ns is None and requests(tmp_path, "start") == 0


def test_the_key_is_of_everything_that_a_step_time_depends_on(made):
    evaluate, slower = made(), chains(2, 3, 2, time_ns=2000)
    ranks = [placed(ONE, "given", range(6)), placed(ONE, "given", range(1, 7))]
    asked = [(CHAINS, placed(ONE)), (CHAINS, placed(SPLIT)), (CHAINS, placed(ONE, "fifo")), *((CHAINS, rank) for rank in ranks)]
    keys = {evaluate.key(*pair) for pair in [*asked, (slower, placed(ONE))]}
    keys |= {made(protocol=STEADY).key(*asked[0]), made(hardware="another").key(*asked[0])}
    assert len(keys) == 8 and made().key(*asked[0]) in keys


def test_what_was_measured_is_known_with_its_schedule(made):
    evaluate = made()
    evaluate(CHAINS, [placed(ONE), placed(TOO_LARGE), placed(ONE, "fifo"), placed(CUT, "given", range(6))])
    found = made().measured(CHAINS)
    assert [(p.device.tolist(), p.schedule) for p in found] == [
        (ONE, "critical-path"), (TOO_LARGE, "critical-path"), (ONE, "fifo"), (CUT, "given"),
    ]  # fmt: skip
    assert found[-1].priority.tolist() == list(range(6))
    assert made(protocol=STEADY).measured(CHAINS) == [] and evaluate.measured(chains(3, 2, 2)) == []


def test_a_comparison_is_kept_for_its_purpose_and_says_what_failed(made, tmp_path):
    pair = [placed(SPLIT), placed(ONE)]
    split, one = made().compare(CHAINS, pair, "a")
    assert len(split) == len(one) == STEADY.steps and np.median(one) > 1.9 * np.median(split)
    assert made().compare(CHAINS, pair, "a") == [split, one] and requests(tmp_path, "start") == 2
    made().compare(CHAINS, pair, "b")
    assert requests(tmp_path, "start") == 4
    for _ in range(2):
        with pytest.raises(MeasurementError, match="out_of_memory: the first op"):
            made().compare(CHAINS, [placed(SPLIT), placed(TOO_LARGE)], "a")
    assert requests(tmp_path, "start") == 6


def test_it_is_known_for_whom_something_was_measured_first(made):
    evaluate = made()
    evaluate.of("heuristics")(CHAINS, [placed(ONE)])
    evaluate(CHAINS, [placed(ONE), placed(SPLIT)])
    devices = {by: [placement.device.tolist() for placement in evaluate.measured(CHAINS, by)] for by in ("heuristics", "policy", None)}
    assert devices == {"heuristics": [ONE], "policy": [SPLIT], None: [ONE, SPLIT]}


def test_records_of_an_older_version_are_nobodys(made, tmp_path):
    made()(CHAINS, [placed(ONE)])
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    (tmp_path / "ledger").write_text("".join(json.dumps({k: v for k, v in line.items() if k != "by"}) + "\n" for line in lines))
    assert made().measured(CHAINS, "policy") == [] and len(made().measured(CHAINS)) == 1


def test_a_line_that_is_not_whole_is_ignored_with_a_warning(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    ledger.add("a", {"step_ns": [1, 2]})
    ledger.add("b", {"step_ns": [3]})
    whole = (tmp_path / "ledger").read_bytes()
    (tmp_path / "ledger").write_bytes(whole[:-5])  # the machine went down
    with pytest.warns(UserWarning, match="line 2 is not a complete record"):
        torn = Ledger(tmp_path / "ledger")
    assert torn.find("b") is None and torn.find("a") == {"key": "a", "step_ns": [1, 2]}
    torn.add("b", {"step_ns": [4]})
    with pytest.warns(UserWarning, match="line 2"):
        again = Ledger(tmp_path / "ledger")
    assert [record["step_ns"] for record in again] == [[1, 2], [4]]
