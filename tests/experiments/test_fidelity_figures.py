"""The figures of fidelity, by hand."""

import pytest

from experiments.fidelity import figures

MIB = 2**20


def row(device: str, step_ns: list[int], simulated_ns: int, peaks: list[list[int]] | None = None, schedule: str = "critical-path") -> dict:
    return {
        "device": device, "order": [0, 1], "schedule": schedule, "step_ns": step_ns, "simulated_ns": simulated_ns,
        "simulated_peak_bytes": [8 * MIB, 0], "peak_memory_bytes": peaks or [[8 * MIB, 0]] * 3, "difference": {"largest": 0.0},
    }  # fmt: skip


def rows() -> dict[str, dict]:
    return {
        "cpu:0 alone": row("00", [100, 100, 400], 110),
        "cpu:1 alone": row("11", [120, 120, 120], 120),
        "expert, critical-path": row("01", [50, 60, 70], 45),
        "expert, fifo": row("01", [90, 80, 70], 90, schedule="fifo") | {"order": [1, 0]},
        "heft, critical-path": row("01", [80, 90, 100], 45),
    }


def test_placements_that_came_out_equal_are_one():
    assert figures.medians(rows()).tolist() == [100, 120, 75, 80, 75]
    found = figures.of(rows())
    assert (found["placements"], found["distinct"]) == (5, 4)
    assert (found["one_core_ns"], found["fastest_ns"], found["fastest"]) == (100, 75, "expert, critical-path")
    assert found["chosen"] == "expert, critical-path"
    assert found["choice_over_best"] == 1
    assert found["errors"] == pytest.approx([0.1, 0, 0.4, 0.125, 0.4])
    assert found["near"] == 4  # at most 112.5
    assert found["cores_apart"] == pytest.approx(0.2)


def test_the_choice_is_what_the_simulator_would_take():
    found = figures.of(rows() | {"expert, fifo": rows()["expert, fifo"] | {"simulated_ns": 40}})
    assert found["chosen"] == "expert, fifo"
    assert found["choice_over_best"] == pytest.approx(80 / 75)
    good = {"spearman": 0.95, "spearman_near": 0.7, "median_error": 0.15, "largest_memory_error": 0.1}
    assert figures.misses(found | good) == ["choice_over_best 1.067"]
    assert figures.misses(found | good | {"spearman": None, "median_error": 0.151, "largest_memory_error": 0.101}) == [
        "spearman -",
        "choice_over_best 1.067",
        "median_error 0.151",
        "largest_memory_error 0.101",
    ]


def test_the_error_of_memory_is_that_of_the_worse_device_in_the_median_step():
    tipped = row("01", [50], 50, [[8 * MIB, 0], [10 * MIB, 4], [10 * MIB, 0]])
    found = figures.of(rows() | {"expert, critical-path": tipped})
    assert found["memory_errors"] == pytest.approx([0, 0, 0.2, 0, 0])
    assert (found["memory_error"], found["memory_over"], found["memory_always_over"]) == (0, 1, 0)  # the first step held what was simulated
    always = row("01", [50], 50, [[10 * MIB, 0], [10 * MIB, 0]])
    assert figures.of(rows() | {"expert, critical-path": always})["memory_always_over"] == 1
    unseen = row("01", [50], 50, [[8 * MIB, 0]]) | {"simulated_peak_bytes": [8 * MIB, MIB]}
    assert figures.of({"one": rows()["cpu:0 alone"], "other": unseen, "more": rows()["expert, fifo"]})["largest_memory_error"] == MIB


def test_halves_are_every_other_turn_of_two_steps():
    turns = {"00": [1, 1, 9, 9, 1, 1], "01": [2, 2, 8, 8, 2, 2], "11": [3, 3, 7, 7, 3, 3]}
    assert figures.of({device: row(device, step_ns, step_ns[0]) for device, step_ns in turns.items()})["halves"] == -1
    assert figures.of({device: row(device, step_ns[:2], step_ns[0]) for device, step_ns in turns.items()})["halves"] is None


def test_a_schedule_is_worth_what_the_same_placement_takes_under_the_other():
    found = figures.schedules(rows())
    assert list(found) == ["expert"]
    assert found["expert"]["measured"]["median"] == pytest.approx(80 / 60)
    assert found["expert"]["simulated"] == 2


def test_pooled_times_are_relative_to_one_core():
    slow = {
        name: each | {"step_ns": [7 * ns for ns in each["step_ns"]], "simulated_ns": 7 * each["simulated_ns"]}
        for name, each in rows().items()
    }
    alone = figures.figures("torch", {"one": {"rows": rows(), "ops": 2}})
    both = figures.figures("torch", {"one": {"rows": rows(), "ops": 2}, "slow": {"rows": slow, "ops": 2}})
    assert both["spearman"] == pytest.approx(alone["spearman"], abs=0.01)
    assert "expert" in figures.table(both)
