"""Does the simulator say what a step takes? Placements of real training steps on two pinned CPU devices, measured and simulated.

    python -m experiments.fidelity.run torch [WORKLOAD ...]      # measures what is missing, then prints the figures
    python -m experiments.fidelity.run torch --figures           # the figures of what there is

Resumable by workload.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from experiments import results
from experiments.fidelity import figures
from experiments.fidelity.again import relink, remember, resimulate
from experiments.fidelity.measuring import measured

HERE = Path(__file__).resolve().parent
AGAIN = {"memory": remember, "links": relink, "simulate": resimulate}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the workloads that have no results yet and prints the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executor", choices=tuple(figures.WORKLOADS))
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--steps", type=int, default=40, help="of each placement; 40 unless given")
    parser.add_argument("--figures", action="store_true", help="measure nothing")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory of what was measured again, and nothing else")
    parser.add_argument("--links", action="store_true", help="measure the links of what was measured again, and nothing else")
    parser.add_argument("--simulate", action="store_true", help="measure nothing, simulate what was measured anew")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    path = chosen.results / f"{chosen.executor}.json"
    document = results.load(path) or {"workloads": {}}
    again = [name for name in AGAIN if getattr(chosen, name)]
    for name in again:
        for workload in chosen.workloads or document["workloads"]:
            AGAIN[name](chosen.executor, workload, document["workloads"][workload])
            document["workloads"][workload][f"{name}_provenance"] = results.provenance(HERE)
            results.save(path, document)
    for workload in [] if chosen.figures or again else chosen.workloads or figures.WORKLOADS[chosen.executor]:
        if workload not in document["workloads"]:
            document["workloads"][workload] = measured(chosen.executor, workload, chosen.steps) | {"provenance": results.provenance(HERE)}
            results.save(path, document)
            print(workload, document["workloads"][workload]["seconds"], "s", flush=True)
    found = figures.figures(chosen.executor, document["workloads"])
    print(json.dumps(found) if chosen.json else figures.table(found))


if __name__ == "__main__":
    main()
