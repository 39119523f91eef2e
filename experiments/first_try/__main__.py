"""What a stranger's network comes to at first try: every input that plain PyTorch or ONNX Runtime runs is placed and checked.

    python -m experiments.first_try.environment DIR        # makes the environment that runs the others
    DIR/bin/python -m experiments.first_try                # all sources, some hours on two cores; what is there is kept
    DIR/bin/python -m experiments.first_try torch_modules  # one source
    python -m experiments.first_try --every 20             # one input in twenty
    python -m experiments.first_try --again refused wrong  # what came to these words once more
    python -m experiments.first_try --show                 # the tables of what there is
    python -m experiments.first_try --list                 # writes exclusions.json anew
    python -m experiments.first_try --page                 # writes the tables of docs/first-try.md anew

Outcomes are kept by input and commit: a run that was stopped goes on, and a new commit tries everything again.
"""

from __future__ import annotations

import os
import subprocess
import sys

from experiments import output
from experiments.first_try import summary
from experiments.first_try.sources import SOURCES


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("sources", nargs="*", default=[], metavar="SOURCE", help=f"of {', '.join(SOURCES)}; without it, all")
    parser.add_argument("--every", type=int, default=1, help="one input in so many")
    parser.add_argument("--again", nargs="*", metavar="WORD", help="try only what came to these words once more; without a word: all")
    parser.add_argument("--show", action="store_true", help="the tables of what there is")
    parser.add_argument("--list", action="store_true", help="write exclusions.json anew")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/first-try.md anew")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.sources if name not in SOURCES]
    if unknown:
        parser.error(f"{unknown[0]}: is no source; there are {', '.join(SOURCES)}")
    for name in () if chosen.show or chosen.list or chosen.page else chosen.sources or SOURCES:
        again = [] if chosen.again is None else ["--again", *chosen.again]
        command = [sys.executable, "-m", "experiments.first_try.sweep", name, "--every", str(chosen.every), *again]
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    outcomes = summary.all_outcomes()
    if chosen.list:
        summary.list_exclusions(outcomes)
    if chosen.page:
        summary.write_page(outcomes)
    found = {f"{figure.source}, {figure.kind}": round(figure.percent, 1) for figure in summary.figures(outcomes, summary.exclusions())}
    output.show(summary.table(outcomes), found, chosen, summary.FOLDER / "results" / "first_try.md")


if __name__ == "__main__":
    main()
