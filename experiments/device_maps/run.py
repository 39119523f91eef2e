"""The maps that accelerate makes itself, judged: their step, their peaks, and how much a better map of the same kind takes.

    python -m experiments.device_maps.run [--evaluations 100] [--show]

Ten networks of transformers at their default sizes, a training step or an inference each, on two machines of two cards. A map is
`infer_auto_device_map` with at most 70 % of the weights on either card, whole blocks kept. A better one is what `judge --improve` searches.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from experiments import cells, output, results
from experiments.cells import Cell
from gnnplace.bounds.bounds import lower_bound
from gnnplace.constraints import Constraint, constrained
from gnnplace.exports.assignments import read_assignment
from gnnplace.exports.targets import exported
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.placement import Placement
from gnnplace.portfolio import comparison, portfolio
from gnnplace.portfolio.candidates import Candidate
from gnnplace.problems import Problem
from gnnplace.result import known
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.sources.code_graph import graph_of

PATH = Path(__file__).resolve().parent / "results" / "maps.json"
MACHINES = ("2x rtx-3070, pcie4", "rtx-4070 + rtx-3070, pcie4")
SHARE = 0.7  # of the weights, that either card may hold
ROOM, GAIN = 1.05, 0.02


class Network(NamedTuple):
    """A network of transformers by the name of its class, with sizes that differ from its configuration's, and whether it trains."""

    kind: str
    trains: bool
    batch: int = 8
    sizes: Mapping[str, Any] = {}


SMALL = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12}
NETWORKS: Mapping[str, Network] = {
    "gpt2": Network("GPT2LMHeadModel", trains=True, batch=4),
    "gpt2, inference": Network("GPT2LMHeadModel", trains=False),
    "bert": Network("BertForMaskedLM", trains=True),
    "roberta, inference": Network("RobertaForMaskedLM", trains=False),
    "distilbert": Network("DistilBertForMaskedLM", trains=True),
    "opt": Network("OPTForCausalLM", trains=True, batch=4, sizes={"num_hidden_layers": 12}),
    "llama": Network("LlamaForCausalLM", trains=True, batch=4, sizes=SMALL),
    "qwen2, inference": Network("Qwen2ForCausalLM", trains=False, sizes=SMALL),
    "vit": Network("ViTForImageClassification", trains=True, batch=32),
    "resnet, inference": Network("ResNetForImageClassification", trains=False, batch=32),
}


def problem_of(network: Network, machine: str) -> tuple[nn.Module, Problem]:
    """The module, on no device, and its step as accelerate executes it."""
    import transformers

    config = network.kind.partition("For")[0].removesuffix("LMHeadModel") + "Config"
    vision = network.kind.endswith("ImageClassification")
    with torch.device("meta"):
        module = getattr(transformers, network.kind)(getattr(transformers, config)(**network.sizes))
        inputs = (torch.zeros(network.batch, 3, 224, 224),) if vision else (torch.zeros(network.batch, 256, dtype=torch.long),)
    step = TorchStep(module, _loss, inputs) if network.trains else TorchInference(module, inputs)
    graph = graph_of(step, network.kind)
    return module, sources.costed(graph, sources.cluster(machine), None, print, print, runtime="accelerate")


def _loss(module: nn.Module, *given: torch.Tensor) -> torch.Tensor:
    return module(*given)[0].float().square().mean()


def judged(name: str, machine: str, evaluations: int) -> Cell:
    """The step of accelerate's own map and of a better one, over the bound under accelerate's rules."""
    from accelerate import infer_auto_device_map

    module, problem = problem_of(NETWORKS[name], machine)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))
    kept = getattr(module, "_no_split_modules", None)
    device_map = infer_auto_device_map(module, {card: int(SHARE * weights) for card in (0, 1)}, no_split_module_classes=sorted(kept or ()))
    under, bound_ns = constrained(problem, Constraint()), int(lower_bound(problem))
    cell: Cell = {"bound_ns": bound_ns, "names": len(device_map)}

    def searched(**options: Any) -> Candidate:
        budget = portfolio.budget(under.problem, None, evaluations)
        return comparison.best(under.problem, budget, portfolio.Options(forms=False, **options))

    try:
        placement = _read(device_map, problem)
    except ValueError as told:  # a bad map, or one that accelerate refuses
        return cell | {"refused": str(told)} | _better([searched()])
    (result,) = simulate(problem, [placement])
    cell |= {"map_ns": result.step_time_ns, "infeasible": result.infeasible, "peaks": np.asarray(result.peak_memory_bytes).tolist()}
    return cell | _better([searched(), searched(starts={"start": known(under.within(placement))})])


def _read(device_map: Mapping[str, Any], problem: Problem) -> Placement:
    """The placement of a map. Raises ValueError if it is none, or if accelerate does not run it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.json"
        path.write_text(json.dumps(device_map))
        try:
            placement = read_assignment(str(path), problem, "accelerate")
        except ValueError as told:
            raise ValueError(str(told).partition(": ")[2]) from told
    exported(problem, placement, "accelerate", None, lambda line: None)
    return placement


def _better(candidates: Sequence[Candidate]) -> Cell:
    best = min(candidates, key=lambda each: each.score)
    return {"better_ns": best.result.feasible_ns, "better_devices": len(np.unique(best.placement.device))}


def table(computed: Mapping[str, Cell]) -> str:
    """A row for each map, then how many are worth improving and are improved."""
    rows, worth, gained = [], 0, 0
    for label, cell in computed.items():
        if "refused" in cell:
            rows.append([label, "refused", "", "", f"{cell['better_ns'] / 1e6:.1f}", cell["refused"]])
            continue
        over, better = cell["map_ns"] / cell["bound_ns"], cell["better_ns"]
        gain = 1 - better / cell["map_ns"] if better else 0.0
        counts = cell["infeasible"] is not None or over >= ROOM
        worth, gained = worth + counts, gained + (counts and (cell["infeasible"] is not None or gain >= GAIN))
        peaks = ", ".join(f"{peak / 2**30:.2f}" for peak in cell["peaks"] if peak)
        rows.append([label, f"{cell['map_ns'] / 1e6:.1f}", f"{over:.3f}", peaks, f"{better / 1e6:.1f} ({-gain:+.1%})" if better else "-",
                     cell["infeasible"] or ""])  # fmt: skip
    header = ["network and machine", "map, ms", "over the bound", "peaks, GiB", "better, ms", "infeasible or refused"]
    told = f"{gained} of the {worth} maps that are 5 % over the bound, or fit no memory, have a better one by 2 % or more.\n"
    return results.markdown_table(header, rows) + "\n" + told


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("--show", action="store_true", help="only the table of the cells that are there")
    arguments = parser.parse_args()
    if not arguments.show:
        jobs: dict[str, cells.Job] = {
            f"{name}, {machine}": (judged, (name, machine, arguments.evaluations)) for name in NETWORKS for machine in MACHINES
        }
        cells.compute(PATH, jobs, {"evaluations": arguments.evaluations, "share": SHARE})
    text = table(results.load(PATH)["cells"])
    output.show(text, {"table": text}, arguments, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
