"""What people would do, as rows and in one line of advice: by hand, on four cards of which two are three times as fast."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.graphs import equal_gpus

from gnnplace.formats.placements import Alternatives, AlternativeStep
from gnnplace.report import advice, alternatives
from gnnplace.report.alternatives import HEADER, PIPELINES, left_out, refused, rows, without_cpus

CARDS = equal_gpus(4, memory_bytes=2**30)


def step(planner: str, each_ms: float, busy: tuple[float, ...] = (1, 1, 1, 1), peak_mib: int = 512, **columns) -> AlternativeStep:
    number, names = columns.pop("micro_batches", 8), CARDS.device_names
    step_ns = round(each_ms * number * 1e6)
    return AlternativeStep(
        planner=planner, micro_batches=number, step_time_ns=step_ns, micro_batch_time_ns=round(each_ms * 1e6),
        infeasible="no room" if peak_mib > 1024 else None, peak_memory_bytes=dict.fromkeys(names, 2**20) | {"gpu:1": peak_mib * 2**20},
        busy_ns={name: round(share * step_ns) for name, share in zip(names, busy, strict=True)},
        micro_batches_on=dict(zip(names, columns.pop("on", (2, 2, 2, 2)), strict=True)),
        transferred_bytes=columns.pop("sent", 0), **columns,
    )  # fmt: skip


def test_a_row_says_time_memory_and_the_device_that_is_used_least():
    (row,) = rows(CARDS, [step("ddp", 10.5, (1, 1, 0.6, 0.8), on=(1, 1, 3, 3))])
    assert row == ("DDP", "8", "10.500", "84.000", "0.5 of 1.0 on gpu:1", "gpu:2 60 %", "1, 1, 3, 3") and len(row) == len(HEADER)


def test_a_rule_without_room_says_where_and_how_much():
    large = step("fsdp", 10, peak_mib=1536, copies="fetched")
    (row,) = rows(CARDS, [large])
    assert row == ("FSDP", "8", "no room", "", "gpu:1 lacks 512.0 MiB", "", "2, 2, 2, 2, weights fetched for each use")
    assert refused(CARDS, large.model_copy(update={"peak_memory_bytes": None})) == "no room"


def test_a_line_says_how_far_the_plan_and_the_best_rule_are_from_what_accelerators_could_do():
    machine = replace(CARDS, devices=(replace(CARDS.devices[0], name="cpu:0", kind="cpu"), *CARDS.devices))

    def beside(plan_ms: float, cpu: float) -> Alternatives:
        plan = step("climb from fsdp", plan_ms, plan=True)
        plan.busy_ns["cpu:0"] = round(cpu * plan.step_time_ns)
        return Alternatives(steps=[plan, step("fsdp", 12)], advice="-", without_cpus_ns=80_000_000)

    least = "Accelerators alone take at least 10.000 ms for a micro-batch, in every form: FSDP takes 20.0 % more, this plan"
    assert without_cpus(machine, beside(10.5, 0.0)) == f"{least} 5.0 % more."
    assert without_cpus(machine, beside(9, 0.64)) == f"{least} 10.0 % less (cpu:0 computes for 64 % of it)."
    assert without_cpus(machine, beside(9, 0.0).model_copy(update={"without_cpus_ns": None})) == ""


def test_the_plan_is_marked_and_worse_pipelines_are_only_named():
    steps = [step("climb from fsdp", 9, plan=True), *(step(name, 10 + at) for at, name in enumerate(PIPELINES))]
    names = [row[0] for row in rows(CARDS, steps)]
    assert names == ["> this plan", "GPipe", "1F1B", "GraphPipe"]
    assert left_out(steps) == "other pipelines, none of them better: interleaved 1F1B, ZB-H1, ZB-V, V-Half"
    assert left_out(steps[:2]) == ""


def test_a_plan_that_is_a_rule_has_its_name():
    assert rows(CARDS, [step("ddp", 9, plan=True)])[0][0] == "> DDP, this plan"


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (step("one-card", 10, on=(0, 8, 0, 0)), "One card is all you need here: one process on gpu:1, 8 accumulation steps."),
        (
            step("ddp", 10),
            "DDP is all you need here: torchrun --nproc-per-node 4 ..., DistributedDataParallel(model), 2 accumulation steps a rank, "
            "no_sync() for all but the last.",
        ),
        (
            step("ddp", 10, on=(0, 0, 1, 1), micro_batches=2),
            "DDP is all you need here: torchrun --nproc-per-node 2 ..., DistributedDataParallel(model), 1 accumulation step a rank.",
        ),
        (
            step("fsdp", 10, copies="fetched"),
            "FSDP is all you need here: torchrun --nproc-per-node 4 ..., fully_shard(block, reshard_after_forward=True) for each block, "
            "then fully_shard(model), 2 accumulation steps a rank.",
        ),
        (
            step("zb-v", 10, on=(8, 8, 8, 8)),
            "ZB-V is all you need here: torchrun --nproc-per-node 4 ..., torch.distributed.pipelining, "
            "ScheduleZBVZeroBubble(stages, n_microbatches=8) with 2 stages a rank.",
        ),
        (
            step("v-half", 10, on=(8, 8, 8, 8)),
            "V-Half is all you need here: 4 ranks; torch.distributed.pipelining has no schedule class for it.",
        ),
    ],
    ids=lambda value: value.planner if isinstance(value, AlternativeStep) else "",
)
def test_advice_says_how_to_run_a_rule_that_is_enough(rule: AlternativeStep, line: str):
    assert advice.advice(CARDS, [rule.model_copy(update={"plan": True})]) == line
    near = advice.advice(CARDS, [step("climb", 9.9, plan=True), rule])
    assert near == line.replace("here:", "here (this plan takes 1.0 % less):")


def test_of_rules_that_are_enough_the_simplest_is_advised():
    line = advice.advice(
        CARDS, [step("climb", 9.95, plan=True), step("zb-v", 10), step("fsdp", 10.05), step("ddp", 10.1), step("one-card", 20)]
    )
    assert line.startswith("DDP is all you need here (this plan takes 1.5 % less): ")


def test_hybrid_shards_are_advised_with_a_mesh_of_nodes():
    rule = step("fsdp", 10, plan=True, copies="free").model_copy(update={"replicas": 2})
    line = advice.advice(CARDS, [rule])
    assert (
        'fully_shard(block, mesh=init_device_mesh("cuda", (2, 2)), reshard_after_forward=False)' in line
        and "(model, the same mesh)" in line
    )
    assert alternatives.rows(CARDS, [rule])[0][-1] == "2, 2, 2, 2, weights kept in each of 2 nodes"


def test_unequal_shares_of_fsdp_are_said_to_wait():
    line = advice.advice(CARDS, [step("fsdp", 10, plan=True, on=(1, 1, 3, 3), copies="free")])
    assert "reshard_after_forward=False" in line and "1, 1, 3, 3 accumulation steps on ranks 0 to 3 (ranks wait for each other" in line


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (
            step("ddp", 10, (1, 1, 0.79, 0.79)),
            "DDP leaves gpu:2 and gpu:3 idle 21 % of the step, since whole micro-batches can't be shared",
        ),
        (step("hybrid", 10, (1, 1, 1, 0.5)), "hybrid leaves gpu:3 idle 50 % of the step, since layers at one home and whole micro-batches"),
        (step("ddp", 10, (0.8,) * 4, sent=2**31), "DDP leaves all 4 devices idle 20 % of the step, waiting for its 2.0 GiB sent a step"),
        (step("1f1b", 10, (0.7, 0.9, 0.9, 0.9)), "1F1B leaves gpu:0 idle 30 % of the step, since stages are unequal"),
        (step("one-card", 10, (0, 1, 0, 0)), "one card leaves gpu:0, gpu:2 and gpu:3 idle 100 % of the step"),
        (step("ddp", 10), "DDP has more work on the devices that are busiest, with its 0.0 MiB sent a step"),
    ],
    ids=lambda value: value.planner if isinstance(value, AlternativeStep) else "",
)
def test_advice_says_why_a_plan_is_better(rule: AlternativeStep, reason: str):
    plan = step("climb", 8, (0.95,) * 4, plan=True)
    line = advice.advice(CARDS, [plan, rule])
    assert line.startswith(f"This plan takes 20.0 % less than {alternatives.word(rule)}: {reason}") and line.endswith(".")


def test_where_no_rule_fits_the_nearest_are_said():
    large = [step("ddp", 10, peak_mib=3072), step("1f1b", 10, peak_mib=1536)]
    line = advice.advice(CARDS, [step("climb", 8, plan=True), *large])
    assert line == "No rule fits, this plan does: 1F1B: gpu:1 lacks 512.0 MiB; DDP: gpu:1 lacks 2.0 GiB."
    assert advice.advice(CARDS, [step("climb", 8, plan=True, peak_mib=1100), *large]).startswith("Nothing fits: 1F1B: gpu:1 lacks")


def test_times_of_steps_of_different_numbers_are_compared_for_a_micro_batch():
    line = advice.advice(CARDS, [step("climb", 8, plan=True, micro_batches=16), step("ddp", 10, micro_batches=4)])
    assert line.startswith("This plan takes 20.0 % less than DDP")


def test_two_nodes_have_a_launcher_each():
    from gnnplace.sources import graphs

    cluster = graphs.cluster("2 nodes of 2x t4, pcie3, ethernet-10")
    names = cluster.device_names
    given = step("ddp", 10, plan=True).model_copy(
        update={
            key: dict.fromkeys(names, value) for key, value in (("busy_ns", 80 * 10**6), ("micro_batches_on", 2), ("peak_memory_bytes", 1))
        }
    )
    assert "torchrun --nnodes 2 --nproc-per-node 2 ..." in advice.advice(cluster, [given])
