"""The table of README: one micro-batch at a time beside eight, as people run them and as `best` plans them.

python -m experiments.as_people_run.short_table     # of the cells that are there; writes results/short_table.md
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments import results
from experiments.as_people_run.run import CELLS, CLUSTERS, fastest
from experiments.cells import Cell
from gnnplace.report.alternatives import WORDS

K40S, V100S, MIXED, H200S, H100S, UNEQUAL, T4S = CLUSTERS
STEPS = (
    ("bert-base", V100S, "8 V100s"),
    ("gpt2", K40S, "4 K40s"),
    ("gpt2", T4S, "2 nodes of 2 T4s, Ethernet"),
    ("resnet-50", MIXED, "2 K40s, 2 V100s"),
    ("vit-b16", UNEQUAL, "2 RTX 4090s, an RTX 3090"),
    ("moe-8e", UNEQUAL, "2 RTX 4090s, an RTX 3090"),
    ("dlrm", K40S, "4 K40s"),
    ("llama-1b", MIXED, "2 K40s, 2 V100s"),
)
MANY = 8


def table(cells: Mapping[str, Cell]) -> str:
    """Milliseconds of a micro-batch."""
    rows = []
    for graph, cluster, machine in STEPS:
        one, several = (cells[f"{graph}/{cluster}/{number}"] for number in (1, MANY))
        hand = fastest(several, tuple(several["rules"]))
        winner = several["best"]["step_ns"]
        better = hand is None or winner < 0.99 * hand[1]["step_ns"]
        rows.append([
            graph, machine, _ms(one["best"]), _ms(several["rules"]["ddp"], MANY),
            "no room" if hand is None else f"{_ms(hand[1], MANY)} ({WORDS.get(hand[0], hand[0])})",
            f"**{_ms(several['best'], MANY)}**" if better else _ms(several["best"], MANY), _ms({"step_ns": several["bound_ns"]}, MANY),
        ])  # fmt: skip
    header = ["network", "machine", "one micro-batch", "eight: DDP", "eight: by hand", "eight: `best`", "bound"]
    return results.markdown_table(header, rows)


def _ms(row: Cell, micro_batches: int = 1) -> str:
    if row.get("infeasible") or row["step_ns"] is None:
        return "no room"
    ms = row["step_ns"] / micro_batches / 1e6
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


if __name__ == "__main__":
    CELLS.with_name("short_table.md").write_text(text := table(results.load(CELLS)["cells"]))
    print(text)
