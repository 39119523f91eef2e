"""GO: max-pooling and segments by hand, chained tasks, priorities, and the optima that it finds."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.slow import slow

import gnnplace as gp
from gnnplace import cli, testing
from gnnplace.commands.usage import DONE
from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.files import read_settings
from gnnplace.config.training import CreditConfig, ExplorationConfig, OptimizerConfig, RewardConfig, TrainingConfig
from gnnplace.costs.roofline import problem as posed
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import RULES, Placement, check
from gnnplace.policies import registry
from gnnplace.policies.go import segments
from gnnplace.policies.go.op_graph import MaxPoolSage, largest_of_neighbours
from gnnplace.policies.go.policy import GOConfig
from gnnplace.policies.go.priority_levels import by_priority, levels_of, list_placement, ordered_placements
from gnnplace.policies.go.segments import ModulatedSegments, SegmentAttention
from gnnplace.policies.go.task_chain import TaskChain, mean_of_units
from gnnplace.policies.tape import Tape
from gnnplace.portfolio.comparison import candidates
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.algorithms.imitate import imitate
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson, reference_ns
from gnnplace.training.update.rollout import greedy, replay, rollout
from gnnplace.units.units import expand, units

SMALL = GOConfig(width=16, state=4, heads=2, segment=4, hidden=16, levels=4, schedule="fifo")
BOTH, SCHEDULING = replace(SMALL, tasks=("placement", "scheduling")), replace(SMALL, tasks=("scheduling",))
built = testing.built


def learned(config, problem, updates=30, seed=0, baseline="critic", lr=0.01, value=0.5, **training):
    """The learner of a policy after some updates."""
    policy = registry.build(config, config.shape([problem]), 1, seed)
    credit = CreditConfig(baseline=baseline, normalise=baseline != "critic")
    settings = TrainingConfig(
        updates=updates, placements=16, threads=1, greedy_every=1000, optimizer=OptimizerConfig(lr=lr),
        reward=RewardConfig("sqrt-ratio"), credit=credit,
        exploration=ExplorationConfig(entropy_start=0.0), **training,
    )  # fmt: skip
    lesson = Lesson(problem, reference_ns(problem, simulate))
    learner = Learner(
        policy, [lesson], Learning(settings, PpoConfig(epochs=2, value=value), seed), simulate, BestPlacements(1, lambda *best: None)
    )
    fit(learner)
    return learner


def greedy_ns(policy, problem):
    return simulate(problem, [greedy(policy)(problem)])[0].feasible_ns


def unlike_chains():
    """Two chains of ops of other kinds, on two GPUs. (GO can't tell equal ops apart.)"""
    ops = [Op(f"{kind}{i}", kind, (Output(100),), time_ns={"gpu": 1000}) for kind in ("MatMul", "Relu") for i in range(3)]
    edges = [(c + i, 0, c + i + 1) for c in (0, 3) for i in range(2)]
    return posed(ComputationGraph.from_ops("unlike chains", ops, edges), equal_gpus(2))


def order_decides(reader=("gpu:1",)):
    """`a` is before `b` in the queue of the first GPU, but `c`, on the other, waits for `b`: 14 ns with `b` first, else 18."""
    ops = [
        Op("a", "MatMul", (), time_ns={"gpu:0": 4}),
        Op("b", "Relu", (Output(1),), time_ns={"gpu:0": 4}),
        Op("c", "Conv2D", (), time_ns=dict.fromkeys(reader, 9)),
    ]
    return posed(ComputationGraph.from_ops("order decides", ops, [(1, 0, 2)]), equal_gpus(2))


# the networks


def test_max_pooling_by_hand():
    sage = MaxPoolSage(1, width=1, rounds=1)
    weights = {"pool.0.weight": [[2.0]], "pool.0.bias": [1.0], "join.0.weight": [[3.0, 5.0]], "join.0.bias": [-1.0]}
    sage.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    made = sage(torch.tensor([[0.5], [1.0], [-1.0]]), torch.tensor([[0, 2], [1, 1]]))  # the last node has no neighbour, nor has the first
    most = 1 / (1 + np.exp(-(2 * 0.5 + 1)))  # of the first, since the sigmoid grows
    torch.testing.assert_close(made, torch.tensor([[3 * 0.5 - 1], [3 * 1.0 + 5 * most - 1], [0.0]]), check_dtype=False)


def test_the_largest_is_taken_in_each_column_and_nothing_comes_from_nowhere():
    nodes = torch.tensor([[0.2, 0.9], [0.7, 0.1], [0.5, 0.5]], requires_grad=True)
    largest = largest_of_neighbours(nodes, torch.tensor([[0, 1], [2, 2]]))
    assert largest.tolist() == pytest.approx(torch.tensor([[0, 0], [0, 0], [0.7, 0.9]]))
    largest.sum().backward()
    assert nodes.grad.tolist() == [[0, 1], [1, 0], [0, 0]]


def attention(segment=4):
    torch.manual_seed(0)
    return SegmentAttention(8, heads=2, segment=segment)


@pytest.mark.parametrize("ops", [1, 3, 4, 5, 8, 10])
def test_attention_is_that_of_each_segment_to_itself_and_the_one_before(ops):
    attend, rows = attention(), torch.randn(2, ops, 8)
    made = attend(rows)
    for first in range(0, ops, 4):
        own, seen = rows[:, first : first + 4], rows[:, max(0, first - 4) : first + 4]
        key, value = attend.memory(seen).chunk(2, dim=-1)
        query, read = attend.query(own), []
        for head in (slice(0, 4), slice(4, 8)):
            share = torch.softmax(query[..., head] @ key[..., head].transpose(1, 2) / 2, dim=-1)
            read.append(share @ value[..., head])
        torch.testing.assert_close(made[:, first : first + 4], attend.out(torch.cat(read, dim=-1)))


def changed_by(function, rows, op):
    """The ops whose output another row of `op` changes."""
    other = rows.clone()
    other[:, op] += 1.0
    with torch.no_grad():
        return sorted({int(at) for at in (function(rows) - function(other)).abs().amax(-1).nonzero()[:, 1]})


def test_a_segment_is_seen_by_itself_and_the_next_and_a_layer_more_carries_further():
    rows = torch.randn(1, 14, 8)
    assert changed_by(attention(), rows, 5) == list(range(4, 12))
    trunk = ModulatedSegments(8, layers=2, heads=2, segment=4, hidden=8, modulation=False)
    assert changed_by(lambda rows: trunk(rows[0], rows), rows, 0) == list(range(12))


def test_no_gradient_goes_to_the_segment_before():
    attend, rows = attention(), torch.randn(1, 8, 8, requires_grad=True)
    attend(rows)[:, 4:].sum().backward()
    assert (rows.grad[:, :4] == 0).all() and (rows.grad[:, 4:] != 0).any()
    assert (attend.memory.weight.grad != 0).all()


def test_the_condition_gates_every_layer_unless_modulation_is_off():
    torch.manual_seed(0)
    on, off = (ModulatedSegments(8, layers=1, heads=2, segment=4, hidden=8, modulation=switch) for switch in (True, False))
    conditions, rows = torch.randn(6, 8), torch.randn(1, 6, 8)
    torch.testing.assert_close(on(conditions, rows), on.layers[0](on.modulation(conditions[None]) * rows))
    torch.testing.assert_close(off(conditions, rows), off.layers[0](rows))
    assert off.modulation is None and not torch.allclose(on(conditions + torch.randn(6, 8), rows), on(conditions, rows))


def test_without_layers_every_row_is_alone():
    torch.manual_seed(0)
    trunk = ModulatedSegments(8, layers=0, heads=2, segment=4, hidden=8)
    rows = torch.randn(1, 6, 8)
    assert torch.equal(trunk(rows[0], rows), rows) and not list(trunk.parameters())
    chain = TaskChain({"placement": 2}, width=8, attention=None)
    assert changed_by(lambda rows: chain(rows)["placement"], rows, 3) == [3]


def test_a_task_reads_what_the_one_before_it_made_and_lends_it_nothing():
    torch.manual_seed(0)
    chain, rows = TaskChain({"placement": 2, "scheduling": 3}, width=8, attention=attention()), torch.randn(1, 6, 8)
    first, second = (made := chain(rows))["placement"], made["scheduling"]
    assert first.shape == (1, 6, 2) and second.shape == (1, 6, 3)
    head = chain.heads["placement"]
    joined = head.join(rows)
    torch.testing.assert_close(first, head.decide(joined + chain.attention(joined)))
    with torch.no_grad():
        head.decide[-1].bias += torch.tensor([1.0, -1.0])
    assert not torch.allclose(chain(rows)["scheduling"], second)
    with torch.no_grad():
        chain.heads["scheduling"].decide[-1].bias += 1.0
    torch.testing.assert_close(chain(rows)["placement"], first + torch.tensor([1.0, -1.0]))


def test_activations_that_are_computed_again_give_the_same_gradients(monkeypatch):
    problem, found = unlike_chains(), []
    for most in (segments.MOST_ROWS, 0):
        monkeypatch.setattr(segments, "MOST_ROWS", most)
        policy = built(BOTH, problem)
        tape = Tape("sample", 3, torch.Generator().manual_seed(0))
        rollout(policy, problem, tape, None)
        replay(policy, problem, tape).tape.log_probability().sum().backward()
        found.append([p.grad for p in policy.parameters() if p.grad is not None])
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again)


# decisions


@pytest.mark.parametrize("check_", [each for each in testing.CHECKS if each is not testing.every_op_is_placed_by_a_decision])
def test_scheduling_alone_keeps_every_other_promise_of_a_policy(check_):
    check_(partial(built, SCHEDULING))


def logits_of(policy, state, embedded):
    """The logits of single ops' devices, from the embeddings of ops."""
    return policy.chain(policy.trunk(embedded[0], policy._rows(state, embedded[0])))["placement"]


def test_a_later_segment_never_changes_an_earlier_ones_logits_and_an_earlier_one_changes_the_next():
    problem = chains(24, 1, 2)
    policy = built(replace(SMALL, layers=1), problem)
    logits, embedded = partial(logits_of, policy, policy.reset(problem, 1)), torch.randn(1, 24, 16)
    assert changed_by(logits, embedded, 5) == list(range(4, 20))  # modulation, layer and head carry it a segment further each
    assert changed_by(logits, embedded, 21) == [20, 21, 22, 23]


def test_without_layers_an_op_knows_no_other_but_by_its_embedding():
    problem = chains(6, 1, 2)
    policy = built(replace(SMALL, layers=0), problem)
    assert changed_by(partial(logits_of, policy, policy.reset(problem, 1)), torch.randn(1, 6, 16), 2) == [2]


def test_the_embedding_of_an_op_tells_its_neighbours_both_ways():
    problem, other = (
        posed(ComputationGraph.from_ops("graph", [op(name) for name in "abcd"], edges), equal_gpus(2)) for edges in ([], [(1, 0, 2)])
    )
    policy = built(SMALL, problem)
    alone, joined = (policy.graph(policy.reset(each, 1).graph) for each in (problem, other))
    assert not alone.any()  # four equal ops, kept apart
    position = policy.reset(other, 1).position
    a, b, c, d = (joined[position[i]] for i in range(4))
    assert torch.equal(a, d) and not torch.allclose(b, a) and not torch.allclose(c, a)


def test_an_iteration_knows_the_last_actions_and_none_of_its_own():
    problem = unlike_chains()
    policy, logits = built(BOTH, problem), []
    for device in (0, 1):
        answers = {"device": torch.full((1, 6), device), "priority": torch.full((1, 6), 2)}
        tape = Tape.recorded([answers, answers])
        rollout(policy, problem, tape, None)
        logits.append([{name: made.logits[0] for name, made in step.items()} for step in tape.steps])
    (first, second), (other_first, other_second) = logits
    for name in ("device", "priority"):
        assert torch.equal(first[name], other_first[name])  # neither of other ops nor of the task before
        assert not torch.allclose(second[name], other_second[name])


def test_every_op_of_a_sample_is_drawn_independently_with_its_own_probability():
    problem, number = unlike_chains(), 4000
    policy = built(replace(SMALL, iterations=1), problem)
    tape = Tape("sample", number, torch.Generator().manual_seed(0))
    rollout(policy, problem, tape, None)
    made = tape.steps[0]["device"]
    drawn, expected = made.choice().float(), torch.softmax(made.logits[0][0], dim=-1)[:, 1]
    torch.testing.assert_close(drawn.mean(0), expected, atol=0.04, rtol=0)
    correlation = torch.corrcoef(drawn.t()) - torch.eye(6)
    assert correlation.abs().max() < 0.06


def test_the_logarithm_of_a_sample_is_the_sum_over_iterations_tasks_and_ops():
    problem = unlike_chains()
    policy = built(BOTH, problem)
    tape = Tape("sample", 2, torch.Generator().manual_seed(0))
    rollout(policy, problem, tape, None)
    assert tape.decisions_by_step() == (12, 12)
    by_hand = 0
    for step in tape.steps:
        for made in step.values():
            by_hand = by_hand + torch.log_softmax(made.logits[0], -1).gather(-1, made.choice()[..., None]).sum((1, 2))
    torch.testing.assert_close(tape.log_probability(), by_hand)


def test_a_group_is_asked_once_by_the_mean_of_its_ops():
    problem = testing.branches()
    state = built(SMALL, problem).reset(problem, 1)
    names = [problem.graph.op_names[op] for op in problem.graph.order]
    unit = dict(zip(names, state.unit.tolist(), strict=True))
    assert unit["y"] == unit["c"] and sorted(set(unit.values())) == list(range(5))
    logits = torch.arange(6.0).view(1, 6, 1)
    expected = torch.zeros(1, 5, 1)
    for name, at in unit.items():
        expected[0, at] += names.index(name) * (0.5 if name in "cy" else 1)
    torch.testing.assert_close(mean_of_units(logits, state.unit), expected)


def test_scheduling_alone_takes_any_number_of_devices():
    alone = built(SCHEDULING, chains(2, 2, 2))
    assert greedy(alone)(chains(2, 2, 3)).schedule == "given"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"tasks": ()}, r"policy\.tasks: \[\] is not one or more of fusion, placement, scheduling"),
        ({"tasks": ("scheduling", "placement")}, "each once and in this order"),
        ({"tasks": ("placement", "placement")}, "each once and in this order"),
        ({"heads": 3}, r"policy\.heads: 3 heads don't divide a width of 128"),
    ],
)
def test_knobs_that_do_not_go_together_are_refused(knobs, words):
    with pytest.raises(ValueError, match=words):
        GOConfig(**knobs)


def test_as_published():
    config = read_settings("go", "published")
    policy, training, algorithm = config.policy, config.training, config.algorithm
    assert (policy.width, policy.features, policy.modulation, policy.units, policy.schedule) == (128, "paper", True, "ops", "fifo")
    assert (training.reward.kind, training.credit.baseline, training.credit.normalise) == ("sqrt-ratio", "critic", False)
    assert (algorithm.kind, algorithm.clip, algorithm.self_imitation) == ("ppo", 0.2, 0.0)


# priorities


@pytest.mark.parametrize("rule", RULES)
def test_one_level_for_all_ops_is_the_schedule_of_the_rule(rule):
    problem = testing.branches()
    device = np.stack([np.zeros(6, np.int32), np.array([0, 1, 2, 1, 0, 1], np.int32)])
    made = ordered_placements(problem, device, np.full((2, 6), 3), rule)
    expected = simulate(problem, [Placement(row, rule) for row in device])
    assert [step.step_time_ns for step in simulate(problem, made)] == [step.step_time_ns for step in expected]


def test_levels_come_before_the_rule_and_the_rule_before_all_else():
    problem = order_decides()
    (placement,) = ordered_placements(problem, np.array([[0, 0, 1]], np.int32), np.array([[1, 0, 0]]), "critical-path")
    a, b, c = placement.priority.tolist()
    assert placement.schedule == "given" and a > b > c  # 4, 14 and 9 ns by paths
    times = {}
    for level in ((0, 0, 0), (1, 0, 0), (0, 1, 0)):
        made = ordered_placements(problem, np.array([[0, 0, 1]], np.int32), np.array([level]), "fifo")
        times[level] = simulate(problem, made)[0].step_time_ns
    assert times == {(0, 0, 0): 18, (1, 0, 0): 18, (0, 1, 0): 14}


def test_levels_hold_equally_many_ops_and_equal_priorities_share_one():
    assert levels_of(np.array([10, 40, 20, 30]), 2).tolist() == [0, 1, 0, 1]
    assert levels_of(np.array([7, 7, 7, 9]), 4).tolist() == [0, 0, 0, 3]
    assert levels_of(np.zeros(5, np.int64), 3).tolist() == [0] * 5


def test_choices_make_the_devices_and_the_order_of_a_placement_in_every_iteration():
    problem = order_decides(("gpu:0", "gpu:1"))
    policy = built(BOTH, problem)
    known = Placement(np.array([0, 0, 1], np.int32), "given", np.array([0, 5, 5]))
    choices = policy.choices(problem, known)
    last = rollout(policy, problem, Tape.recorded([choices, choices]), None)[-1].placements[0]
    assert last.device.tolist() == [0, 0, 1] and simulate(problem, [last])[0].step_time_ns == 14
    optimizer = torch.optim.Adam([p for name, p in policy.named_parameters() if not name.startswith("critic")], lr=0.03)
    for _ in range(15):
        optimizer.zero_grad()
        imitate(policy, problem, choices).backward()
        optimizer.step()
    assert greedy_ns(policy, problem) == 14


def test_without_placement_ops_stand_where_a_list_scheduler_puts_them():
    problem = chains(3, 4, 3)
    made = units(problem.graph, "ops")
    device = expand(made, list_placement(problem, made).astype(np.int32))
    assert simulate(problem, [Placement(device)])[0].step_time_ns == 4 * 1000
    tape = Tape("sample", 3, torch.Generator().manual_seed(0))
    for placement in rollout(built(SCHEDULING, problem), problem, tape, None)[-1].placements:
        assert placement.device.tolist() == device.tolist() and placement.schedule == "given"
    assert set(tape.steps[0]) == {"priority"}


def test_a_list_scheduler_puts_ops_where_they_may_stand_and_have_room():
    problem = testing.restricted()
    made = units(problem.graph, "ops")
    assert check(problem, Placement(expand(made, list_placement(problem, made).astype(np.int32)))) is None
    heavy = ComputationGraph.from_ops("heavy", [op(name, persistent_bytes=600) for name in "ab"], [(0, -1, 1)])
    full = posed(heavy, equal_gpus(2, memory_bytes=1000))
    assert sorted(list_placement(full, units(heavy, "ops")).tolist()) == [0, 1]


@pytest.mark.parametrize(("tasks", "expected"), [(SMALL.tasks, "fifo"), (BOTH.tasks, "given"), (SCHEDULING.tasks, "given")])
def test_a_policy_that_proposes_priorities_says_so_and_keeps_them_among_planners(tasks, expected):
    config, problem = replace(SMALL, tasks=tasks), order_decides()
    assert config.proposes == expected
    (found,) = candidates(problem, {"go": greedy(built(config, problem))}, config.proposes)
    assert found.result.schedule == found.placement.schedule == expected


@pytest.mark.slow
def test_a_checkpoint_places_with_its_priorities_unless_a_schedule_is_named(tmp_path, capsys):
    few = {"training.updates": 1, "training.placements": 2, "policy.width": 8, "policy.tasks": ["placement", "scheduling"]}
    problem = gp.problem("squeezenet", cluster="k40-2")
    trained, path = gp.train(problem, "go", settings="published", knobs=few), tmp_path / "checkpoint.safetensors"
    trained.save(path)
    expected, printed = trained.policy(problem), {}
    for named in ([], ["--schedule", "fifo"]):
        assert cli.main(["place", "squeezenet", "--cluster", "k40-2", "--checkpoint", str(path), "--json", "-q", *named]) == DONE
        printed[tuple(named)] = json.loads(capsys.readouterr().out)
    own, fifo = printed.values()
    assert (own["schedule"], fifo["schedule"], fifo["priority"]) == ("given", "fifo", None)
    assert list(own["priority"].values()) == expected.priority.tolist() and own["device"] == fifo["device"]
    assert own["predicted"]["step_time_ns"] == simulate(problem, [expected])[0].step_time_ns


# learning


def fusion_decides():
    """The light op can be fused with one heavy neighbour alone: that saves 2 us with the first, which it reads, and 18 with the second."""
    ops = [Op("a", "MatMul", (Output(10**6),)), Op("b", "Relu", (Output(9 * 10**6),), canonical_kind="activation"), Op("c", "Conv2D", ())]
    return posed(ComputationGraph.from_ops("fusion decides", ops, [(0, 0, 1), (1, 0, 2)]), equal_gpus(1))


def test_fusion_finds_the_optimum_where_the_order_of_fusing_decides():
    problem, device = fusion_decides(), np.zeros(3, np.int32)
    orders = ((0, 0, 0), (0, 0, 1))
    fused = [Placement(device, fusion=by_priority(problem, np.array(levels), device)) for levels in orders]
    unfused, first, second = (result.step_time_ns for result in simulate(problem, [Placement(device), *fused]))
    assert (unfused - first, unfused - second) == (2000, 18_000)
    learner = learned(replace(SMALL, tasks=("fusion",)), problem, updates=8, lr=0.02, baseline="leave-one-out")
    assert greedy_ns(learner.policy, problem) == second


def test_fusion_joins_what_stands_on_one_device_and_every_task_is_kept():
    ops = [Op(f"{i}", "Relu", (Output(8),), canonical_kind="activation") for i in range(6)]
    problem = posed(ComputationGraph.from_ops("light", ops, [(i, 0, i + 1) for i in range(5)]), equal_gpus(2))
    policy = built(replace(SMALL, tasks=("fusion", "placement", "scheduling")), problem)
    placements = rollout(policy, problem, Tape("sample", 8, torch.Generator().manual_seed(0)), None)[-1].placements
    assert all(check(problem, each) is None and each.priority is not None and each.fusion is not None for each in placements)
    assert len({each.fusion.tobytes() for each in placements}) > 1


def test_levels_are_those_of_the_ops_that_they_were_drawn_for():
    """Decisions are in topological order, which is not that of the document here."""
    ops = [Op(name, "Relu", (Output(size),), canonical_kind="activation") for name, size in zip("dcba", (8, 16, 32, 64), strict=True)]
    graph = ComputationGraph.from_ops("backwards", ops, [(3, 0, 2), (2, 0, 1), (1, 0, 0)])
    problem = posed(graph, equal_gpus(1))
    policy, tape = built(replace(SMALL, tasks=("fusion", "scheduling")), problem), Tape("sample", 16, torch.Generator().manual_seed(0))
    placements = rollout(policy, problem, tape, None)[-1].placements
    drawn = {name: tape.steps[-1][name].choice().numpy() for name in ("fuse", "priority")}
    assert graph.order.tolist() == [3, 2, 1, 0]
    for placement, fuse, priority in zip(placements, drawn["fuse"], drawn["priority"], strict=True):
        assert (placement.priority[graph.order] // graph.num_ops).tolist() == priority.tolist()
        assert placement.fusion.tolist() == by_priority(problem, fuse[::-1].copy(), placement.device).tolist()


def test_scheduling_finds_the_optimum_where_order_decides_and_the_critic_what_that_is_worth():
    problem = order_decides()
    start = Placement(np.array([0, 0, 1], np.int32), "fifo")
    assert simulate(problem, [start])[0].step_time_ns == 18
    learner = learned(SCHEDULING, problem, updates=24)
    assert greedy_ns(learner.policy, problem) == 14
    (experience,), policy = learner._reinforcement.experience.values(), learner.policy
    assert float(policy.value(policy.reset(problem, 1)).detach()) == pytest.approx(float(experience.reward[-1].mean()), abs=0.15)


def test_a_critic_with_weights_of_its_own_learns_alike_under_every_weight_of_its_error():
    weights = [learned(SCHEDULING, order_decides(), updates=1, value=value).policy.state_dict() for value in (0.1, 10.0)]
    assert all(torch.allclose(light, weights[1][name], atol=1e-4) for name, light in weights[0].items())


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_both_tasks_find_the_optimum_that_neither_finds_alone(seed):
    """Beside the queue of `a` and `b` the reader takes 17 ns; elsewhere 18 with `a` first, 14 with `b` first."""
    problem = order_decides(("gpu:0", "gpu:1"))
    times = {}
    for where in (0, 1):
        for level in (0, 1):
            made = ordered_placements(problem, np.array([[0, 0, where]], np.int32), np.array([[0, level, 0]]), "fifo")
            times[where, level] = simulate(problem, made)[0].step_time_ns
    assert times == {(0, 0): 17, (0, 1): 17, (1, 0): 18, (1, 1): 14}
    assert greedy_ns(learned(BOTH, problem, updates=14, seed=seed, baseline="leave-one-out").policy, problem) == 14
