"""The other systems of the field as zero-shot planners: trained on the problems of `policies` for as long, beside the same opponents.

    python -m experiments.zero_shot.others [--rows ...] [--minutes 10] [--show]

All but the unit placer name their devices, so they are trained on, and place on, clusters of five devices alone; no synthetic graph is on
one. Each has its `tuned` settings, but for a warm start (unit placer, GO): nobody is taught by a heuristic. A row's number of updates is a
little more than ten minutes of a processor allow, so that time ends it and learning rates have fallen by then; the hierarchical policy's
800 updates take seven. A row stands beside controls of the problems that it placed, which `policies` has computed. Resumable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import cells, output, results
from experiments.cells import Cell
from experiments.zero_shot import policies, policies_table
from experiments.zero_shot.policies import Held, Row, held_out
from gnnplace.config import files
from gnnplace.sources import graphs as sources

PATH = policies.PATH.with_name("others.json")
NAMED = ("k40-4", "mixed-4")  # of five devices each
DEVICES = 5


def _row(policy: str, updates: int, most_ops: int = 6500, *, named: bool = True) -> Row:
    """The tuned settings of a policy on the corpus of `policies`."""
    drawn = ("--corpus.drawn_clusters=0",) if named else ("--corpus.drawn_clusters=1", "--corpus.synthetic=100")
    corpus = ("--corpus.splits=[train]", f"--corpus.clusters=[{','.join(NAMED)}]", "--corpus.copies=[together,free]",
              "--corpus.micro_batches=[1,4,8]", f"--corpus.most_ops={most_ops}", "--training.greedy_every=100",
              "--training.warm_start.updates=0")  # fmt: skip
    return Row(policy, "tuned", updates, None, (*corpus, *drawn))


ROWS: Mapping[str, Row] = {
    "unit placer": _row("unit-placer", 2700, named=False),
    "ColocRL": _row("colocrl", 4400),
    "HSDAG": _row("hsdag", 2500),
    "Placeto": _row("placeto", 800),
    "GO": _row("go", 260, most_ops=1000),  # with 6500 an update takes eight seconds: eighty in ten minutes
}


def placing(name: str) -> list[Held]:
    """The problems that a row places."""
    if name == "unit placer":
        return held_out()
    return [each for each in held_out() if sources.cluster(each.cluster).num_devices == DEVICES]


def trained(name: str, minutes: float) -> Cell:
    """Trains a row's policy; places what is held out before and after."""
    return policies.learned(policies.config(ROWS[name], 0), placing(name), minutes)[1]


def table(computed: Mapping[str, Cell], opponents: Mapping[str, Cell], names: Sequence[str]) -> str:
    """The rows of policies that place the same problems, beside the controls of these."""
    rows = {key: cell for key, cell in computed.items() if key.split("/")[1] in names}
    if not rows:
        return ""
    kind_of = {held.label: held.kind for held in placing(names[0])}
    beside = {key: cell for key, cell in opponents.items() if key.removeprefix("opponents/") in kind_of}
    return policies_table.table(rows | beside, kind_of)


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--minutes", type=float, default=10, help="of a processor, for each training")
    parser.add_argument("--show", action="store_true", help="only the table of the cells that are there")
    arguments = parser.parse_args()
    if not arguments.show:
        settings = {name: files.to_document(policies.config(row, 0)) for name, row in ROWS.items()}
        jobs: dict[str, cells.Job] = {f"policy/{name}/0": (trained, (name, arguments.minutes)) for name in arguments.rows}
        cells.compute(PATH, jobs, settings | {"minutes": arguments.minutes})
    computed, opponents = results.load(PATH)["cells"], results.load(policies.PATH)["cells"]
    named = [name for name in ROWS if name != "unit placer"]
    text = "\n".join(part for names in (["unit placer"], named) if (part := table(computed, opponents, names)))
    output.show(text, {"table": text}, arguments, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
