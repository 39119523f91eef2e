"""Maps and stages of graph convolutions whose sizes are those of the example: what runs so is written, what does not is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import SplitPoint, pipeline

import gnnplace as gp
from gnnplace.exports.accelerate_trial import try_map
from gnnplace.exports.pipelining_trial import try_stages
from gnnplace.placement import Placement
from gnnplace.runtimes.refusal import TrialResult
from gnnplace.units.modules import modules

pytest.importorskip("torch_geometric")
from support import convolved_graphs
from support.convolved_graphs import CONVOLUTIONS, EDGES, Branches, Net, layers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error:.*not tried")]
both = pytest.mark.parametrize("trains", [True, False])
of_each_kind = pytest.mark.parametrize("convolution", CONVOLUTIONS)


class Kept(nn.Linear):
    """The rows that a mask keeps."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input)[self.mask]


class Elsewhere(nn.Module):
    """Chooses rows of the input, whose values are known, and of a layer's result by the mask of another module."""

    def __init__(self, chosen: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.kept, self.chosen = nn.Linear(3, 3), Kept(), chosen

    def forward(self, x: Tensor) -> Tensor:
        return self.chosen(self.linear(x), self.kept.mask).sum() + self.chosen(x, self.kept.mask)


CHOSEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, mask: x[mask],
    "masked_select": lambda x, mask: x.masked_select(mask[:, None]),
    "repeat_interleave": lambda x, mask: x.repeat_interleave(mask.long(), 0),
    "unique": lambda x, mask: x[mask.unique(return_inverse=True)[1]],
}


def cut(step: gp.TorchStep | gp.TorchInference, second: tuple[str, ...]) -> gp.Plan:
    """Modules whose names begin so on the second GPU, all others on the first."""
    problem = gp.problem(step, cluster="k40-2")
    found = modules(problem.graph)
    chosen = np.array([name.startswith(second) for name in found.names])
    return gp.Plan.of(problem, Placement(np.where(chosen, 2, 1).astype(np.int32)[found.module]))


@both
@of_each_kind
def test_a_map_of_whole_modules_is_written_and_dispatched_it_computes_the_same(
    convolution: type[nn.Module], trains: bool, tmp_path: Path
) -> None:
    accelerate = pytest.importorskip("accelerate")
    net = Net(convolution)
    step = convolved_graphs.step(net, trains, EDGES)
    made = cut(step, ("second", "head")).device_map()
    assert made == {"first": 0, "second": 1, "head": 1}
    with torch.no_grad():
        expected = net(*step.inputs)
        here = {module: "cpu" if where == 0 else "disk" for module, where in made.items()}
        assert torch.equal(
            accelerate.dispatch_model(net, here, main_device="cpu", offload_dir=tmp_path, force_hooks=True)(*step.inputs), expected
        )


@both
@of_each_kind
def test_tensors_that_meet_from_two_devices_are_refused(convolution: type[nn.Module], trains: bool) -> None:
    pytest.importorskip("accelerate")
    step = convolved_graphs.step(Branches(convolution), trains, EDGES)
    fault = try_map(step, {"convolution": 0, "linear": 1}).fault
    assert fault is not None and "cuda:0 and cuda:1" in fault.what
    assert try_map(step, {"convolution": 1, "linear": 1}) == TrialResult()


@both
@pytest.mark.parametrize("chosen", CHOSEN.values(), ids=CHOSEN)
def test_rows_chosen_on_another_device_are_refused(chosen: Callable[[Tensor, Tensor], Tensor], trains: bool) -> None:
    pytest.importorskip("accelerate")
    step = convolved_graphs.step(Elsewhere(chosen), trains)
    fault = try_map(step, {"linear": 0, "kept": 1}).fault
    assert fault is not None and "cuda:0 and cuda:1" in fault.what
    assert try_map(step, {"linear": 1, "kept": 1}) == TrialResult()


@both
@of_each_kind
def test_stages_are_written_and_one_after_the_other_they_compute_the_same(
    convolution: type[nn.Module], trains: bool, tmp_path: Path
) -> None:
    net = layers(convolution)
    step = convolved_graphs.step(net, trains)
    cut(step, ("1", "2")).export("torch-pipelining", tmp_path / "spec.json")
    spec = json.loads((tmp_path / "spec.json").read_text())["split_spec"]
    pipe = pipeline(net, step.inputs, split_spec={name: SplitPoint[point] for name, point in spec.items()})
    assert pipe.num_stages == 2 and all(name.startswith("1") for name in spec)
    (found,) = pipe(*step.inputs)
    assert torch.equal(found, net(*step.inputs))


@both
def test_a_size_by_values_may_lie_within_a_stage_and_not_between_two(trains: bool) -> None:
    step = convolved_graphs.step(nn.Sequential(nn.Linear(3, 3), Kept(), nn.Linear(3, 2)), trains)
    assert try_stages(step, ["1"]) == TrialResult()
    fault = try_stages(step, ["2"]).fault
    assert fault is not None
    assert fault.what == "stages receive tensors of fixed sizes, and stage 1 reads one whose size depends on values"
