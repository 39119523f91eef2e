"""Workers: when a run is as good as the single process, and how much sooner two are."""

from experiments.workers.run import reached_s, table, updates_per_s

SINGLE = {"before_s": 3.0, "ended_s": [0.0, 2.0, 4.0, 6.0], "best_ns": [9e6, 8e6, 7e6, 7e6]}
TWO = {"before_s": 3.0, "ended_s": [0.0, 1.0, 2.0, 3.0], "best_ns": [9e6, 8e6, 7e6, 7e6]}


def test_a_quality_is_reached_at_the_end_of_the_first_update_that_has_it():
    assert reached_s(SINGLE, 7e6) == 4.0 and reached_s(SINGLE, 6e6) is None and updates_per_s(TWO) == 1.0


def test_the_table_compares_processes_of_one_seed():
    lines = table({"0/1": SINGLE, "0/2": TWO, "1/2": TWO}, after=0.75)
    assert "| 0 | 2 | 1.000 | 7.0 | 2.00 | 2.00 |" in lines and "2.00 times as fast" in lines and "\n| 1 |" not in lines
