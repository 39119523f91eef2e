"""Runtimes: what they keep together, the devices that they use, their order; placements say which of them they are for."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.exported_networks import NETWORKS, step
from support.fork_on_pair import run
from support.graphs import equal_gpus, op
from support.parts import random_parts

import gnnplace as gp
from gnnplace.bounds.bounds import lower_bound
from gnnplace.costs import roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.runtimes.accelerate import kept_together
from gnnplace.runtimes.runtime import RUNTIMES, executed, plain, ran_by
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules
from gnnplace.units.units import colocation_closure


def parts(name, trains=False):
    """The modules of each part, in the order in which they begin."""
    graph = gp.problem(step(name, trains), cluster="k40-2").graph
    module_of, kept = modules(graph), kept_together(graph)
    each = {}
    for number, module in enumerate(module_of.names):
        each.setdefault(int(kept.part[int(np.argmax(module_of.module == number))]), []).append(module)
    return list(each.values()), kept.main


@pytest.mark.parametrize("trains", [False, True])
def test_blocks_with_residuals_are_whole_and_modules_whose_results_meet_stand_together(trains):
    blocks, main = parts("residual", trains)
    assert [{name.split(".")[0] for name in block} for block in blocks] == [{"0"}, {"1"}, {"2"}, {"3"}] and main == -1
    language, main = parts("language", trains)
    assert language[0] == ["words", "places"] and language[-1] == ["head"] and len(language) == 5 and main == -1
    assert parts("tied", trains)[0][0] == ["words", "places", "head"]
    assert parts("plain", trains)[0] == [["0"], ["2"], ["4"]]


def test_what_the_model_itself_holds_stands_beside_the_last_module_on_the_first_accelerator():
    patches, main = parts("patches")
    assert patches[0] == ["patches", "module", "head"] and main != -1
    problem = gp.problem(step("patches", trains=True), cluster="k40-2", runtime="accelerate")
    tokens = problem.graph.op_names.index("token")
    assert problem.allowed[tokens].tolist() == [False, True, False]


def towers():
    """Two chains that meet: three ops of 100 ns each, then a sum."""
    ops = [op(f"{side}{number}", 100, 8) for side in "ab" for number in range(3)] + [op("sum", 100)]
    edges = [(0, 0, 1), (1, 0, 2), (3, 0, 4), (4, 0, 5), (2, 0, 6), (5, 0, 6)]
    return ComputationGraph.from_ops("towers", ops, edges)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_devices_that_run_in_turn_never_overlap(name):
    posed = roofline.problem(towers(), equal_gpus(2))
    apart = gp.Placement(np.array([0, 0, 0, 1, 1, 1, 0], dtype=np.int32))
    (free,), (ran,) = simulate(posed, [apart]), simulate(ran_by(posed, name), [apart], timeline=True)
    assert free.step_time_ns < 500 and ran.step_time_ns >= 700
    order = np.argsort(ran.timeline.start_ns)
    assert (ran.timeline.start_ns[order][1:] >= ran.timeline.end_ns[order][:-1]).all()


@pytest.mark.parametrize("trains", [False, True])
def test_accelerate_runs_in_turn_in_inference_alone(trains):
    posed = gp.problem(step("towers", trains), cluster="k40-4", runtime="accelerate")
    kernels = np.flatnonzero(posed.graph.kernel)
    for result in simulate(posed, [random_parts(posed, seed) for seed in range(5)], timeline=True):
        order = kernels[np.argsort(result.timeline.start_ns[kernels])]
        in_turn = (result.timeline.start_ns[order][1:] >= result.timeline.end_ns[order][:-1]).all()
        assert in_turn or trains


@pytest.mark.parametrize("name", ["accelerate", "torch-pipelining"])
def test_programs_of_pytorch_take_no_other_graphs(name):
    with pytest.raises(ValueError, match=rf"runtime: {name} runs modules of PyTorch, and the ops of nmt-2 are not \(Placeholder"):
        ran_by(gp.problem("nmt-2", cluster="k40-2"), name)


def stages_of(name, trains):
    """The modules of each item between which stages may be cut."""
    posed = gp.problem(step(name, trains), cluster="k40-4", runtime="torch-pipelining")
    item, module_of = gp.constrained(posed, gp.Constraint()).stages.item, modules(posed.graph)
    of_module = [int(item[np.argmax(module_of.module == number)]) for number in range(module_of.num_modules)]
    return [[name for name, at in zip(module_of.names, of_module, strict=True) if at == each] for each in range(max(of_module) + 1)]


def test_pipelines_are_cut_between_blocks_and_never_between_readers_of_one_parameter_or_of_inputs():
    for trains in (False, True):
        assert [{name.split(".")[0] for name in item} for item in stages_of("residual", trains)] == [{"0"}, {"1"}, {"2"}, {"3"}]
        assert stages_of("plain", trains) == [["0"], ["2"], ["4"]]
        assert len(stages_of("tied", trains)) == 1 and len(stages_of("language", trains)) == 6
        assert stages_of("towers", trains)[0] == ["left.0", "left.2", "right"]
        assert stages_of("twice", trains) == [["first", "middle", "unused"]]


@pytest.mark.parametrize("name", ["tensorflow", "placed"])
def test_runtimes_without_rules_run_a_placement_as_it_is(name):
    posed = roofline.problem(towers(), equal_gpus(2))
    apart = gp.Placement(np.array([0, 0, 0, 1, 1, 1, 0], dtype=np.int32))
    assert simulate(posed, [apart])[0].step_time_ns == simulate(ran_by(posed, name), [apart])[0].step_time_ns


def test_in_training_a_part_runs_in_the_order_of_the_program():
    posed = gp.problem(step("residual", trains=True), cluster="k40-2", runtime="accelerate")
    placement, group = random_parts(posed, 3), colocation_closure(posed.graph)
    (ran,) = simulate(posed, [placement], timeline=True)
    for part in np.unique(group):
        starts = ran.timeline.start_ns[np.flatnonzero((group == part) & posed.graph.kernel)]
        assert (np.diff(starts) > 0).all()


@pytest.mark.parametrize("name", ["attention", "language", "skips", "gru"])
def test_bounds_hold_for_what_a_runtime_runs(name):
    for trains in (False, True):
        posed = gp.problem(step(name, trains), cluster="k40-2", runtime="accelerate")
        bound = lower_bound(posed)
        assert all(result.step_time_ns >= bound for result in simulate(posed, [random_parts(posed, seed) for seed in range(10)]))


def test_a_runtime_uses_its_devices_alone():
    names = {name: ran_by(gp.problem("squeezenet", cluster="k40-2"), name).allowed.any(axis=0).tolist() for name in RUNTIMES}
    assert names["accelerate"] == [False, True, True]
    piped = ran_by(gp.problem("squeezenet", cluster="k40-2"), "torch-pipelining")
    assert gp.constrained(piped, gp.Constraint()).problem.cluster.device_names == ("gpu:0", "gpu:1")
    assert names["onnxruntime"] == names["openvino"] == names["placed"] == [True, True, True]
    two = ran_by(gp.problem("squeezenet", cluster="cpu-2"), "accelerate")
    assert two.allowed.any(axis=0).tolist() == [True, False]
    only = [Op("a", "aten.mm", (Output(8),), flops=10, allowed=("gpu",)), Op("b", "aten.mm", (), flops=10)]
    posed = roofline.problem(ComputationGraph.from_ops("g", only, [(0, 0, 1)]), gp.problem("squeezenet", cluster="k40-2").cluster)
    assert ran_by(posed, "accelerate").allowed.tolist() == [[False, True, True]] * 2


def test_plans_for_a_runtime_hold_its_rules_without_any_option():
    problem = gp.problem("gpt2", cluster="k40-2", runtime="accelerate")
    for planner in ("heft", "scotch", "m-etf"):
        plan = gp.place(problem, planner)
        assert plan.step.infeasible is None and gp.granularity(problem, plan) in ("module", "stage")
    staged = gp.place(gp.problem("squeezenet", cluster="k40-2", runtime="torch-pipelining"), evaluations=20)
    assert gp.granularity(staged.problem, staged) == "stage" and not (staged.device == 0).any()


def test_the_rules_can_be_taken_away_again():
    for number in (1, 4):
        free = gp.problem("squeezenet", cluster="k40-2", micro_batches=number)
        ruled = ran_by(free, "torch-pipelining")
        assert ruled.graph.runtime == "torch-pipelining" and ruled.graph.sha256 != free.graph.sha256
        again = plain(ruled)
        assert again.graph.sha256 == free.graph.sha256 and again.graph.runtime is None
        assert ran_by(ruled, "torch-pipelining") is ruled and plain(free) is free


def test_a_step_in_replicas_keeps_the_times_of_its_ops_under_a_runtime_and_without_it():
    """Sums of a graph with other groups have other buckets, of which some have the same names."""
    free = gp.problem("squeezenet", cluster="k40-4", micro_batches=4, replicas=2)
    ruled = ran_by(free, "torch-pipelining")
    for one, other in ((free, ruled), (ruled, plain(ruled))):
        at = {name: op for op, name in enumerate(one.graph.op_names)}
        copied = np.flatnonzero(~other.graph.copies.added)
        assert (one.time_ns[[at[other.graph.op_names[op]] for op in copied.tolist()]] == other.time_ns[copied]).all()
        assert (other.time_ns == roofline.problem(other.graph, other.cluster).time_ns).all()
    assert ruled.num_ops != free.num_ops
    assert plain(ruled).graph.sha256 == free.graph.sha256 and (plain(ruled).time_ns == free.time_ns).all()


def test_several_micro_batches_are_for_runtimes_that_run_them():
    with pytest.raises(
        ValueError, match=r"runtime: accelerate runs one micro-batch a step, and this step has 4; placed, torch-pipelining run"
    ):
        gp.problem("squeezenet", cluster="k40-2", micro_batches=4, runtime="accelerate")
    plan = gp.place(gp.problem("squeezenet", cluster="k40-4", micro_batches=4, runtime="torch-pipelining"), evaluations=20)
    assert plan.step.infeasible is None and not (plan.device == 0).any()
    with pytest.raises(ValueError, match="runtime: 'accelerat' is no runtime; nearest is 'accelerate'"):
        executed(towers(), equal_gpus(2), "accelerat")


def test_a_placement_says_what_it_was_made_for_and_commands_follow(tmp_path, capsys):
    file, free = str(tmp_path / "placement.json"), str(tmp_path / "free.json")
    common = ("two-tower-inference", "--cluster", "k40-2", "-q")
    status, out, _ = run(capsys, "place", *common, "--for", "onnxruntime", "--planner", "heft", "-o", file)
    assert status == 0 and "for onnxruntime" in out and "one device after another" in out
    assert json.loads((tmp_path / "placement.json").read_text())["runtime"] == "onnxruntime"
    simulated = json.loads(run(capsys, "simulate", *common, "--placement", file, "--json")[1])
    assert f"step time  {simulated['step_time_ns'] / 1e6:,.3f} ms" in out
    status, _, err = run(capsys, "simulate", *common, "--placement", file, "--for", "openvino")
    assert status == 2 and f"--for: openvino is not onnxruntime, which {file} was made for" in err
    told = run(capsys, "export", *common, "--placement", file, "--to", "tensorflow", "-o", str(tmp_path / "placed"))
    assert told[0] == 2 and "was made for onnxruntime; make one with gnnplace place --for tensorflow" in told[2]
    run(capsys, "place", *common, "--planner", "heft", "-o", free)
    advised = run(capsys, "export", *common, "--placement", free, "--to", "accelerate", "-o", str(tmp_path / "map.json"))
    assert advised[0] == 2 and "or place with --for accelerate, which keeps together what it must" in advised[2]
    times = [
        json.loads(run(capsys, "simulate", *common, "--placement", free, "--json", *more)[1])["step_time_ns"]
        for more in ((), ("--for", "onnxruntime"))
    ]
    assert times[1] > times[0]


def test_the_price_of_a_runtime_is_shown(capsys):
    out = run(capsys, "compare", "squeezenet", "--cluster", "k40-2", "--for", "accelerate", "--evaluations", "5", "-q", "--json")[1]
    table = json.loads(out)
    assert table["runtime"] == "accelerate" and all(row["op_step_time_ns"] > 0 for row in table["planners"] if row["planner"] == "heft")


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_parts_of_known_modules(name):
    if name in ("gpt2", "bert", "llama"):
        pytest.importorskip("transformers")
    each, _ = parts(name)
    assert len(each) > 1
