"""Repairs: what overflows fits afterwards wherever blocks can move, and the frozen step says what the simulator says."""

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import op as gpu_op
from support.graphs import equal_gpus, op
from support.random_problems import random_case
from support.slow import parts
from support.tight_problems import crowded_case, tight_case

from gnnplace.baselines.repairing import repair
from gnnplace.baselines.repairing.frozen import frozen
from gnnplace.baselines.repairing.moves import best_move
from gnnplace.baselines.repairing.relief import hasten
from gnnplace.baselines.repairing.repair import WAYS, Repair, blocks_of
from gnnplace.baselines.repairing.scale import busy_ns, held_bytes, weighed
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import RULES, Placement, check
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate
from gnnplace.units.blocks import grains
from gnnplace.units.units import units


def posed(ops, edges, cluster):
    return problem(ComputationGraph.from_ops("tight", ops, edges), cluster)


def on(made, *device):
    return Placement(np.array(device, dtype=np.int32))


def repaired(made, evaluate, placement):
    """The best of all ways, hastened."""
    found = [Repair(made, evaluate, way).relieved(placement) for way in WAYS]
    way, relief = min(zip(WAYS, found, strict=True), key=lambda each: score(made, evaluate(made, [each[1]])[0]))
    return Repair(made, evaluate, way).hastened(relief)


def peaks(made, placement):
    (result,) = simulate(made, [placement])
    return result.infeasible, result.peak_memory_bytes.tolist()


def test_weights_move_until_they_fit_and_no_more_than_needed_and_then_to_where_it_is_faster():
    made = posed([op(f"w{i}", persistent_bytes=30) for i in range(6)], [], equal_gpus(3, memory_bytes=100))
    infeasible, held = peaks(made, Repair(made, simulate, WAYS[0]).relieved(on(made, *[0] * 6)))
    assert infeasible is None and sorted(held) in ([0, 90, 90], [30, 60, 90])
    assert peaks(made, repaired(made, simulate, on(made, *[0] * 6))) == (None, [60, 60, 60])


def test_what_costs_little_time_moves_first():
    """Both weights are as large; the one moves alone, the other would have its large activation sent."""
    ops = [op("w1", persistent_bytes=60), op("w2", persistent_bytes=60), op("x", 10, 50), op("y", 10)]
    made = posed(ops, [(2, 0, 3), (1, 0, 3), (2, 0, 1)], equal_gpus(2, memory_bytes=180))
    found = repaired(made, simulate, on(made, 0, 0, 0, 0))
    assert found.device.tolist() in ([1, 0, 0, 0],) or peaks(made, found)[0] is None


def test_a_placement_that_fits_stays_and_one_that_cannot_run_too():
    made = posed([op("a", persistent_bytes=30), op("b", persistent_bytes=30)], [(0, 0, 1)], equal_gpus(2, memory_bytes=100))
    fits = on(made, 0, 0)
    assert repaired(made, simulate, fits) is fits
    apart = problem(ComputationGraph.from_ops("apart", [gpu_op("a", 1, 200), gpu_op("b", 1)], [(0, 0, 1)]), equal_gpus(2, memory_bytes=100))
    unlinked = type(apart.cluster)("unlinked", apart.cluster.devices, ())
    cut = problem(apart.graph, unlinked)
    runs_not = on(cut, 0, 1)
    assert repaired(cut, simulate, runs_not) is runs_not


def test_what_fits_is_hastened_where_there_is_room():
    """Three ops are on the slow device; the fast one has room for the weights of two, and takes those that it saves most of."""
    ops = [Op(f"op{i}", "Op", persistent_bytes=40, time_ns={"gpu:0": 10, "gpu:1": slow_ns}) for i, slow_ns in enumerate((50, 90, 70))]
    made = posed(ops, [(0, -1, 1), (1, -1, 2)], equal_gpus(2, memory_bytes=120))
    tight = posed(ops, [(0, -1, 1), (1, -1, 2)], equal_gpus(2, memory_bytes=100))
    slow = on(made, 1, 1, 1)
    assert Repair(made, simulate, WAYS[0]).hastened(slow).device.tolist() == [0, 0, 0]
    full = on(tight, 1, 0, 1)
    assert Repair(tight, simulate, WAYS[0]).hastened(full).device.tolist() == [1, 0, 0]


def test_where_nothing_fits_the_overflow_is_no_larger():
    made = posed([op(f"w{i}", persistent_bytes=70) for i in range(4)], [], equal_gpus(2, memory_bytes=100))
    found = repaired(made, simulate, on(made, 0, 0, 0, 0))
    assert sorted(peaks(made, found)[1]) == [140, 140]


def test_blocks_are_the_ops_of_the_blocks_that_a_search_moves():
    made = random_case(12).problem()
    blocks, closure = blocks_of(made), units(made.graph, "ops")
    expected = [
        sorted(np.flatnonzero(np.isin(closure.unit, grain.block(number))).tolist())
        for grain in grains(made.graph)
        for number in range(grain.num_blocks)
    ]
    found = [sorted(blocks.op[low:high].tolist()) for low, high in zip(blocks.ptr[:-1], blocks.ptr[1:], strict=True)]
    assert found == expected and found


def stepped(made, placement):
    (result,) = simulate(made, [placement], timeline=True)
    return result


@pytest.mark.parametrize("seeds", [range(0, 300, 6), *parts(range(600), 6)], ids=str)
def test_a_frozen_step_holds_what_the_simulated_one_holds(seeds):
    exact, tried = 0, 0
    for seed in seeds:
        case = random_case(seed)
        made, placement = case.problem(), case.placement()
        result = stepped(made, placement)
        if result.timeline is None or made.cluster.device_received.any():
            continue
        still = frozen(made, placement.device, result.timeline)
        held = held_bytes(still, placement.device, int(still.last.max()) + 1).max(axis=1)
        assert (held >= result.peak_memory_bytes).all(), seed
        exact, tried = exact + (held == result.peak_memory_bytes).all(), tried + 1
    assert exact > tried / 2


def frozen_steps(seeds):
    """Random problems with a frozen step, half of them just in time, the blocks with a device where they are, and all devices."""
    for seed in seeds:
        case = random_case(seed)
        made, placement = case.problem(), case.placement()
        result, blocks = stepped(made, placement), blocks_of(made)
        if result.timeline is not None and made.num_devices > 1 and len(blocks.op):
            device = placement.device
            ops = [blocks.op[low:high] for low, high in zip(blocks.ptr[:-1], blocks.ptr[1:], strict=True)]
            yield made, frozen(made, device, result.timeline, seed % 2 == 1), [(each, int(device[each[0]])) for each in ops], device


def moved(device, ops, here, there):
    after = device.copy()
    after[ops[device[ops] == here]] = there
    return after


@pytest.mark.parametrize("seeds", [range(0, 300, 12), *parts(range(600), 6)], ids=str)
def test_a_move_changes_what_devices_hold_as_it_is_said_before(seeds):
    tried = 0
    for made, still, blocks, device in frozen_steps(seeds):
        scale = weighed(still, device, np.zeros(made.num_devices), 0, 1.0)
        for ops, here in blocks:
            _, there = best_move(still, ops, device, here, scale, False)
            if there == here:
                continue
            after = moved(device, ops, here, there)
            assert np.array_equal(scale.carried + scale.carries[there], busy_ns(still, after)[1])
            held = held_bytes(still, after, scale.held.shape[1])
            assert np.array_equal(scale.held[here] + scale.here, held[here])
            assert np.array_equal(scale.held[there] + scale.there[there], held[there])
            tried += 1
    assert tried > len(seeds) / 4


@pytest.mark.parametrize("seeds", [range(0, 300, 12), *parts(range(600), 6)], ids=str)
def test_a_move_saves_what_devices_and_channels_are_busy_less(seeds):
    """With what is too long counted twice: time beyond a limit costs once more."""
    tried = 0
    for made, still, blocks, device in frozen_steps(seeds):
        limit_ns = int(weighed(still, device, np.zeros(made.num_devices), 0, 1.0).load.max()) // 2

        def cost_ns(device, still=still, limit_ns=limit_ns):
            load, carried = busy_ns(still, device)
            return sum(int(each.sum() + np.maximum(0, each - limit_ns).sum()) for each in (load, carried))

        scale = weighed(still, device, np.zeros(made.num_devices), limit_ns, 1.0)
        for ops, here in blocks:
            _, there = best_move(still, ops, device, here, scale, False)
            if there != here:
                assert scale.saved_ns[there] == cost_ns(device) - cost_ns(moved(device, ops, here, there))
                tried += 1
    assert tried > len(seeds) / 4


@pytest.mark.parametrize("seeds", [range(0, 300, 12), *parts(range(600), 6)], ids=str)
def test_what_is_hastened_holds_no_more_than_there_is_room_for(seeds):
    moves = 0
    for made, still, _, device in frozen_steps(seeds):
        before, after = held_bytes(still, device, int(still.last.max()) + 1), device.copy()
        room, blocks = before.max(axis=1) * 1.2, blocks_of(made)
        made_moves = hasten(still, blocks.ptr, blocks.op, after, room, 0.5)
        assert (held_bytes(still, after, before.shape[1]).max(axis=1) <= room).all()
        for block, here, there in made_moves:
            device = moved(device, blocks.op[blocks.ptr[block] : blocks.ptr[block + 1]], here, there)
        assert device.tolist() == after.tolist()
        moves += len(made_moves)
    assert moves > len(seeds) / 10


def test_just_in_time_is_no_earlier_than_when_it_is_read():
    """What `x` makes is read at the end. If the last op were elsewhere, it would lie there from the start, or only then."""
    ops = [op("x", 10, 100), op("y", 1000), op("z", 1000), op("last", 10)]
    made = posed(ops, [(0, -1, 1), (1, -1, 2), (2, -1, 3), (0, 0, 3)], equal_gpus(2, memory_bytes=1000))
    result, there = stepped(made, on(made, 0, 0, 0, 0)), np.array([0, 0, 0, 1], dtype=np.int32)
    early, late = (frozen(made, np.zeros(4, np.int32), result.timeline, just_in_time) for just_in_time in (False, True))
    slices = int(early.last.max()) + 1
    for still, begin in ((early, early.last[0]), (late, late.first[3])):
        assert np.flatnonzero(held_bytes(still, there, slices)[1] == 100).tolist() == list(range(begin, slices))
    assert early.last[0] < late.first[3]


def test_the_best_round_is_returned_not_the_last(monkeypatch):
    made = posed([op(f"w{i}", persistent_bytes=70) for i in range(4)], [], equal_gpus(2, memory_bytes=100))
    rounds = iter([on(made, 0, 0, 1, 1), *[on(made, 0, 0, 0, 1)] * 9])

    def simulated(self, _):
        placement = next(rounds)
        return repair._Round(placement, *self.evaluate(self.problem, [placement], timeline=True))

    monkeypatch.setattr(Repair, "_simulated", simulated)
    assert Repair(made, simulate, WAYS[0]).relieved(on(made, 0, 0, 0, 0)).device.tolist() == [0, 0, 1, 1]


def test_an_order_that_frees_memory_earlier_repairs_without_a_move():
    """Each of three ops makes 60 bytes for one that makes 1 of it; breadth first, all are held at once."""
    ops = [op("start", 1, 1), *(op(f"large{i}", 10, 60) for i in range(3)), *(op(f"small{i}", 10, 1) for i in range(3))]
    edges = [*((0, 0, 1 + i) for i in range(3)), *((1 + i, 0, 4 + i) for i in range(3))]
    made = posed(ops, edges, equal_gpus(2, memory_bytes=100))
    breadth = Placement(np.zeros(7, dtype=np.int32), "fifo")
    assert stepped(made, breadth).infeasible is not None
    found = Repair(made, simulate, WAYS[0], ["fifo", "memory"]).relieved(breadth)
    assert (found.schedule, found.device.tolist()) == ("memory", [0] * 7) and stepped(made, found).infeasible is None
    assert Repair(made, simulate, WAYS[0]).relieved(breadth).schedule == "fifo"


def test_where_all_moves_make_a_step_slower_the_first_of_them_are_tried(monkeypatch):
    """Eight equal ops are on one of two devices. Rounds that move more than two at once are said to be slow."""
    made = posed([op(f"op{i}", 100) for i in range(8)], [], equal_gpus(2, memory_bytes=100))
    seen, real = [], Repair._simulated

    def simulated(self, placement):
        found, changed = real(self, placement), int(placement.device.sum())
        seen.append(changed)
        return found._replace(result=replace(found.result, step_time_ns=10**6)) if changed > 2 else found

    monkeypatch.setattr(Repair, "_simulated", simulated)
    found = Repair(made, simulate, WAYS[0]).hastened(on(made, *[0] * 8))
    assert int(found.device.sum()) == 2 and seen[:4] == [0, 4, 2, 4]


@pytest.mark.parametrize("seeds", [range(0, 200, 20), *parts(range(400), 8)], ids=str)
def test_repairs_are_legal_never_worse_and_mostly_fit_where_something_does(seeds):
    fitted, overflowed = 0, 0
    for seed in seeds:
        for made in (tight_case(seed).problem(), crowded_case(seed).problem()):
            generator = np.random.default_rng(seed)
            closure = units(made.graph, "ops")
            device = generator.integers(made.num_devices, size=closure.num_units).astype(np.int32)[closure.unit]
            placement = Placement(device, RULES[seed % len(RULES)])
            before = stepped(made, placement)
            if check(made, placement) is not None or before.infeasible is None:
                if before.infeasible is None:
                    faster = stepped(made, Repair(made, simulate, WAYS[0]).hastened(placement))
                    assert faster.infeasible is None and faster.step_time_ns <= before.step_time_ns, seed
                continue
            after = stepped(made, repaired(made, simulate, placement))
            over = [np.maximum(0, result.peak_memory_bytes - made.cluster.memory_bytes).sum() for result in (before, after)]
            assert over[1] <= over[0]
            fitted, overflowed = fitted + (after.infeasible is None), overflowed + 1
    assert fitted > overflowed / 4
