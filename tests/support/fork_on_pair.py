"""A graph of three ops and a cluster of two devices as documents, for tests of commands; and running a command in this process."""

from gnnplace import cli

# x (cpu, 0) -> left (gpu) and right (cpu); by hand: docs/execution-model.md
GRAPH = {
    "format": "gnnplace.graph", "version": 1, "name": "fork",
    "ops": [
        {"name": "x", "kind": "Read", "outputs": [{"bytes": 1000}], "time_ns": {"cpu": 10, "gpu": 10}, "phase": "forward"},
        {"name": "left", "kind": "MatMul", "outputs": [{"bytes": 0}], "time_ns": {"cpu": 100, "gpu": 20}, "persistent_bytes": 50},
        {"name": "right", "kind": "MatMul", "outputs": [], "time_ns": {"cpu": 40, "gpu": 30}, "flops": 7},
    ],
    "edges": [[0, 0, 1], [0, 0, 2]],
}  # fmt: skip
CLUSTER = {
    "format": "gnnplace.cluster", "version": 1, "name": "pair",
    "devices": [
        {"name": "cpu:0", "kind": "cpu", "memory_bytes": 5000, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9},
        {"name": "gpu:0", "kind": "gpu", "memory_bytes": 5000, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9},
    ],
    "links": [
        {"src": "cpu:0", "dst": "gpu:0", "bandwidth_bytes_per_s": 10**12, "overhead_ns": 4, "latency_ns": 3},
        {"src": "gpu:0", "dst": "cpu:0", "bandwidth_bytes_per_s": 10**12, "overhead_ns": 4, "latency_ns": 3},
    ],
}  # fmt: skip
IN = ("graph.json", "--cluster", "cluster.json")
PLACEMENT = {"format": "gnnplace.placement", "version": 1, "device": {"x": "cpu:0", "left": "gpu:0", "right": "cpu:0"}}


def run(capsys, *arguments):
    """Exit status, stdout and stderr of a command, in this process."""
    try:
        status = cli.main(arguments)
    except SystemExit as finished:
        status = finished.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err
