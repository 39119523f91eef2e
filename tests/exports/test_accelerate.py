"""accelerate loads a device map and dispatches a model by it, whose outputs stay what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support import torch_steps

import gnnplace as gp
from gnnplace.exports.device_map import device_map
from gnnplace.placement import Placement
from gnnplace.units.modules import modules

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["convolutions", "branches", "language"])
def test_a_dispatched_model_computes_what_the_model_computes(name: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    step = language() if name == "language" else getattr(torch_steps, name)()
    problem = gp.problem(step, cluster="mixed-4")
    found = modules(problem.graph)
    device = np.random.default_rng(1).integers(problem.num_devices, size=found.num_modules).astype(np.int32)
    made = device_map(problem, Placement(device[found.module]))
    accelerate.utils.check_device_map(step.module, made)  # every parameter has a device
    here = {module: "cpu" if where in ("cpu", 0) else "disk" for module, where in made.items()}
    assert set(here.values()) == {"cpu", "disk"}
    with torch.no_grad():
        expected = step.loss(step.module.eval(), *step.inputs)
        dispatched = accelerate.dispatch_model(step.module, here, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
        assert any(tmp_path.iterdir())
        assert torch.equal(step.loss(dispatched, *step.inputs), expected)


def language() -> gp.TorchStep:
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, vocab_size=100)
    )
    ids = torch.randint(100, (2, 8))
    return gp.TorchStep(model, lambda module, ids: module(input_ids=ids, labels=ids).loss, (ids,))
