"""The order of the paper's columns: what is added to a machine, and how orders are written."""

from experiments.table1.order import slower
from experiments.table1.run import order
from gnnplace.corpus import clusters


def test_every_op_and_every_transfer_takes_so_much_more():
    cluster = clusters.cluster("k40-2")
    found = slower(cluster, dispatch_ns=6, transfer_ns=100)
    for before, after in zip(cluster.devices, found.devices, strict=True):
        assert (after.launch_ns - before.launch_ns, after.dispatch_ns - before.dispatch_ns) == (6, 6)
    assert [after.overhead_ns - before.overhead_ns for before, after in zip(cluster.links, found.links, strict=True)] == [100] * 6


def test_columns_are_ordered_by_time_equal_ones_joined_and_what_did_not_run_left_out():
    assert order({"cpu": 2.0, "gpu": None, "expert": 0.3, "scotch": 0.3001, "min-cut": 0.1}) == "min-cut < expert = scotch < cpu"
