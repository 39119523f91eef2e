"""The methods of a plan give the results of the functions behind them."""

import numpy as np
import pytest

import gnnplace as gp
from gnnplace.fusion.defaults import default


@pytest.fixture(scope="module")
def plan():
    return gp.place(gp.problem("gpt2", cluster="k40-2"), "heft")


def test_a_plan_is_a_placement_of_its_problem(plan, tmp_path):
    assert isinstance(plan, gp.Placement)
    assert gp.simulate(plan.problem, plan).step_time_ns == plan.step.step_time_ns
    plan.save(tmp_path / "plan.json")
    again = gp.load(tmp_path / "plan.json", plan.problem)
    assert (again.device == plan.device).all() and gp.Plan.of(plan.problem, again).step.step_time_ns == plan.step.step_time_ns
    assert plan.bound_ns == gp.lower_bound(plan.problem)
    assert plan.explain() == gp.explain(plan.problem, plan) and plan.explain("h.0") == gp.explain(plan.problem, plan, "h.0")


def test_a_table_has_every_op_as_it_runs(plan):
    table, graph = plan.to_dataframe(), plan.problem.graph
    assert sorted(table.op) == sorted(graph.op_names) and table.start_ns.is_monotonic_increasing
    assert table.end_ns.max() == plan.step.step_time_ns == table.chain_ns.sum()
    assert table.output_bytes.sum() == graph.output_bytes.sum() and table.persistent_bytes.sum() == graph.persistent_bytes.sum()
    row = {name: number for number, name in enumerate(graph.op_names)}
    of = table.op.map(row).tolist()
    names = np.array(plan.problem.cluster.device_names)
    assert (table.device == names[plan.device[of]]).all() and (table.end_ns == plan.step.timeline.end_ns[of]).all()
    assert table.phase.tolist() == [graph.phase[op] for op in of] and set(table.module) == set(gp.modules(graph).names)


def test_what_lies_on_the_critical_chain_has_no_slack(plan):
    table = plan.to_dataframe()
    assert (table.slack_ns >= 0).all() and (table.slack_ns[table.chain_ns > 0] == 0).mean() > 0.95 and (table.slack_ns > 0).any()


def test_fused_ops_are_one_row():
    problem = gp.problem("squeezenet", cluster="k40-2")
    alone = gp.place(problem, "gpu")
    fused = gp.Plan.of(problem, gp.Placement(alone.device, fusion=default(problem)))
    assert fused.to_dataframe().end_ns.max() == fused.step.step_time_ns < alone.step.step_time_ns
    assert len(fused.to_dataframe()) == len(np.unique(fused.fusion)) < len(alone.to_dataframe())


def test_its_files(plan, tmp_path):
    plan.picture(tmp_path / "plan.svg")
    plan.export("chrome-trace", tmp_path / "trace.json")
    assert (tmp_path / "plan.svg").stat().st_size > 1000 and (tmp_path / "trace.json").stat().st_size > 1000
    with pytest.warns(UserWarning, match="not tried"):  # a graph of the corpus
        assert gp.place(plan.problem, "gpu").device_map() == {"": 0}
    with pytest.raises(ValueError, match="granularity"):
        plan.device_map()
    with pytest.raises(ValueError, match="ending"):
        plan.picture(tmp_path / "plan.gif")


@pytest.mark.slow
def test_its_report(plan, tmp_path):
    pytest.importorskip("plotly")
    plan.report(tmp_path / "plan.html")
    assert "gnnplace.Plan.report" in (tmp_path / "plan.html").read_text()
