"""What an optimiser, micro-batches and clipping add to a training step; named inputs, a module's own loss, compiled modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gnnplace.frontends.torch.optimizers import _listed, built, rules
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.updates import IMPLEMENTATION
from gnnplace.graph import ComputationGraph

SIZE = 4 * 6  # of the only parameter
WITH_TWO_MOMENTS = 2 * SIZE + 1  # and a counter
STATE = {  # numbers that each keeps of a matrix of 4 x 6
    "adam": WITH_TWO_MOMENTS, "adamw": WITH_TWO_MOMENTS, "radam": WITH_TWO_MOMENTS, "adamax": WITH_TWO_MOMENTS,
    "adadelta": WITH_TWO_MOMENTS, "rprop": WITH_TWO_MOMENTS, "nadam": WITH_TWO_MOMENTS + 1, "sgd": 0, "rmsprop": SIZE + 1,
    "adagrad": SIZE + 1, "asgd": SIZE + 3, "adafactor": 4 + 6 + 1, "muon": SIZE,
}  # fmt: skip


class Tuple(nn.Module):
    """Returns its loss first, where it is asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 4, bias=False)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> tuple[Tensor, ...]:
        y = self.out(x)
        return (y,) if labels is None else ((y - labels).square().mean(), y)


def summed(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).sum()


def linear() -> nn.Linear:
    return nn.Linear(6, 4, bias=False)


def graph(module: nn.Module | None = None, loss: Any = summed, inputs: Any = None, **how: Any) -> ComputationGraph:
    inputs = (torch.zeros(3, 6),) if inputs is None else inputs
    return TorchStep(linear() if module is None else module, loss, inputs, **how).computation_graph("small")


def updates(found: ComputationGraph) -> list[int]:
    return np.flatnonzero(found.canonical_kind.among(["update"])).tolist()


@pytest.mark.parametrize("name", STATE)
def test_an_update_is_one_op_that_reads_and_writes_its_state_once(name: str) -> None:
    found = graph(optimizer=name)
    (update,) = updates(found)
    assert found.persistent_bytes.sum() == 4 * (SIZE + STATE[name])
    counted = 1 if name in ("adam", "adamw") else 0  # ATen's kernels only read the counter
    assert found.bytes_accessed[update] == 4 * (SIZE + 2 * (SIZE + STATE[name]) - counted)
    assert found.flops[update] > 0 and found.phase[update] == "update" and found.colocation[update] == "weight"


def test_arithmetic_of_updates_by_hand() -> None:
    def each(optimizer: Any) -> int:
        found = graph(optimizer=optimizer)
        return int(found.flops[updates(found)].sum()) // SIZE

    assert [each(name) for name in ("adam", "adamw", "sgd")] == [12, 13, 2]
    assert each(lambda parameters: torch.optim.SGD(parameters, momentum=0.9, weight_decay=0.1)) == 7
    # of RMSprop: v = a v + b g g (4), the root, + eps, w -= g / root (2)
    assert each("rmsprop") == 8
    assert each(lambda parameters: torch.optim.Adam(parameters, amsgrad=True)) == 13


@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"capturable": True}, {}])
def test_how_torch_runs_an_optimiser_changes_nothing(how: dict[str, bool]) -> None:
    module = linear()
    assert graph(module, optimizer=torch.optim.Adam(module.parameters(), **how)).sha256 == graph().sha256


def test_a_setting_may_be_a_tensor() -> None:
    for name in ("sgd", "adam", "adadelta"):
        cls = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adadelta": torch.optim.Adadelta}[name]
        module = linear()
        plain, tensor = cls(module.parameters(), lr=0.25), cls(module.parameters(), lr=torch.tensor(0.25))
        assert graph(module, optimizer=plain).sha256 == graph(module, optimizer=tensor).sha256
    betas = (torch.tensor(0.5), torch.tensor(0.75))
    adam = torch.optim.Adam(module.parameters(), lr=torch.tensor(0.001), betas=betas, capturable=True)
    assert graph(module, optimizer=adam).flops.sum() == graph(module).flops.sum()
    meta = torch.optim.SGD(module.parameters())
    meta.param_groups[0]["lr"] = torch.tensor(0.1, device="meta")
    with pytest.raises(ValueError, match="optimizer: a setting lies on the meta device; give a number"):
        graph(module, optimizer=meta)


def settings_of_every_optimiser() -> Iterator[tuple[type[torch.optim.Optimizer], dict[str, Any]]]:
    """Every setting that torch itself tests, in every implementation."""
    from torch.testing._internal.common_optimizers import optim_db  # its import locks PyTorch's flags

    for info in optim_db:
        for given in info.optim_inputs_func(device="cpu"):
            for how in ({}, *({name: True} for name in (*IMPLEMENTATION, "maximize") if name not in given.kwargs)):
                yield info.optim_cls, given.kwargs | how


@pytest.mark.slow
def test_the_state_is_that_of_torch_in_all_settings_that_torch_tests() -> None:
    kinds = set()
    for cls, settings in settings_of_every_optimiser():
        module = linear()
        module.weight.grad = torch.ones_like(module.weight)
        try:
            optimizer = cls(module.parameters(), **settings)
        except (TypeError, RuntimeError, ValueError):  # torch does not take these settings
            continue
        if cls in (torch.optim.LBFGS, torch.optim.SparseAdam):
            with pytest.raises(ValueError, match=f"optimizer: {cls.__name__} .* so its step is no update of each"):
                built(optimizer, module)
            continue
        kinds.add(cls)
        cost = rules(built(optimizer, module), module)["weight"].cost(module.weight)
        plain = cls(module.parameters(), **{name: value for name, value in settings.items() if name not in IMPLEMENTATION})
        plain.step()
        kept = {name: value for name, value in plain.state[module.weight].items() if isinstance(value, Tensor)}
        assert cost.state == {name: (tuple(value.shape), value.dtype) for name, value in kept.items()}, (cls, settings)
        assert cost.flops > 0
    assert len(kinds) == 13


def test_a_scheduler_and_steps_before_change_nothing() -> None:
    module = linear()
    optimizer = torch.optim.NAdam(module.parameters())
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    summed(module, torch.ones(3, 6)).backward()
    optimizer.step()
    assert graph(module, optimizer=optimizer).sha256 == graph(optimizer="nadam").sha256
    assert module.weight.grad is not None  # the user's


def test_groups_have_settings_of_their_own_and_what_is_in_none_is_not_trained() -> None:
    module = nn.Sequential(linear(), nn.Linear(4, 5, bias=False), nn.Linear(5, 2))
    groups = [{"params": module[0].parameters(), "momentum": 0.9}, {"params": module[1].parameters()}]
    found = graph(module, optimizer=torch.optim.SGD(groups, lr=0.1))
    assert found.flops[updates(found)].tolist() == [5 * 24, 2 * 20]


def test_each_of_several_optimisers_updates_its_own_parameters() -> None:
    module = nn.Linear(6, 4)
    several = [torch.optim.AdamW([module.bias]), torch.optim.Muon([module.weight])]
    found = graph(module, optimizer=several)
    alone = {
        kind: graph(module, optimizer=[optimizer]) for kind, optimizer in zip(("aten._fused_adamw_", "optim.Muon"), several, strict=True)
    }
    for kind, other in alone.items():
        for graph_of in (found, other):
            assert np.count_nonzero(graph_of.kind.among([kind])) == 1
        assert found.flops[found.kind.among([kind])] == other.flops[other.kind.among([kind])]
    assert len(updates(found)) == 2
    assert found.persistent_bytes.sum() == 4 * (24 + 4 + 24 + 2 * 4 + 1)  # parameters, Muon's moment, AdamW's two and its counter


def test_a_list_holds_optimisers_of_parameters_of_their_own() -> None:
    module = nn.Linear(6, 4)
    both = [torch.optim.AdamW(module.parameters()), torch.optim.Muon([module.weight])]
    for given, words in (
        (both, r"AdamW and Muon both update weight; give each parameter to one of them"),
        ([both[0], torch.optim.SGD([nn.Parameter(torch.zeros(1))])], "SGD updates a parameter that the module has not; build .*"),
    ):
        with pytest.raises(ValueError, match=f"^optimizer: {words}$"):
            graph(module, optimizer=given)
    words = "optimizer: a list holds optimisers, each built of the parameters that it updates, not "
    for strange, kinds in (([both[0], "adam"], r"\[AdamW, str\]"), ([], r"\[\]")):
        with pytest.raises(ValueError, match=f"^{words}{kinds}$"):
            _listed(strange)


def test_an_optimiser_of_somebody_else_is_known_by_its_own_code() -> None:
    class Lion(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    moment = self.state[parameter].setdefault("moment", torch.zeros_like(parameter))
                    parameter.add_(moment.sign(), alpha=-group["lr"])
                    moment.lerp_(parameter.grad, 0.1)

    found = graph(optimizer=Lion)
    (update,) = updates(found)
    assert (found.kind[update], found.flops[update], found.persistent_bytes.sum()) == ("optim.Lion", 6 * SIZE, 8 * SIZE)


def test_clipping_by_norm_joins_all_gradients_and_leaves_their_phases() -> None:
    plain, clipped = (graph(nn.Sequential(linear(), nn.Linear(4, 2, bias=False)), clip_norm=most) for most in (None, 1.0))
    weight = [np.count_nonzero(found.phase.among(["backward_weight"])) for found in (plain, clipped)]
    assert weight[0] == weight[1] > 0
    norms = clipped.kind.among(["aten.linalg_vector_norm"])
    assert np.count_nonzero(norms) == 3 and np.count_nonzero(norms & clipped.layer.among(["clip"])) == 1
    assert clipped.flops.sum() - plain.flops.sum() == 2 * (24 + 8) + 2 + 4  # a norm and a product each; their norm; the factor
    assert np.count_nonzero(graph(clip_value=1.0).kind.among(["aten.clamp"])) == 1


def test_inputs_may_be_named_nested_or_no_tensors() -> None:
    x = torch.zeros(3, 6)
    asked = graph().sha256
    assert graph(inputs={"x": x}).sha256 == asked
    assert graph(loss=lambda module, batch, power: (module(batch["x"][0]) ** power).sum(), inputs=({"x": [x]}, 1)).sha256 != ""
    assert graph(loss=lambda module, batch: summed(module, batch["x"][0]), inputs=({"x": [x]},)).sha256 == asked


def test_a_module_may_return_its_loss_itself() -> None:
    inputs = {"x": torch.zeros(3, 6), "labels": torch.zeros(3, 4)}
    own, ours = (graph(Tuple(), loss, inputs).sha256 for loss in (None, lambda module, x, labels: module(x, labels)[0]))
    assert own == ours
    with pytest.raises(ValueError, match="loss: the module returns a tuple without a scalar loss"):
        graph(Tuple(), None, {"x": inputs["x"]})


def compiled_inside() -> nn.Module:
    module = nn.Sequential(linear())
    module[0] = torch.compile(module[0])
    return module


def test_a_compiled_module_is_traced_as_it_was_written() -> None:
    in_place = linear()
    in_place.compile()
    asked = graph().sha256
    assert graph(torch.compile(linear())).sha256 == graph(in_place).sha256 == graph(loss=torch.compile(summed)).sha256 == asked
    found = graph(compiled_inside())
    assert set(found.layer.values) == set(graph(nn.Sequential(linear())).layer.values)
    x = (torch.zeros(3, 6),)
    assert (
        TorchInference(torch.compile(linear()), x).computation_graph("n").sha256
        == TorchInference(linear(), x).computation_graph("n").sha256
    )


class Experts(nn.Module):
    """Sends each token to one of four experts; none takes more than its capacity, if there is one."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__()
        self.gate, self.experts, self.capacity = nn.Linear(6, 4), nn.Parameter(torch.zeros(4, 6, 6)), capacity

    def forward(self, x: Tensor) -> Tensor:
        share, expert = self.gate(x).softmax(-1).max(-1)
        if self.capacity is None:
            made = torch.zeros_like(x)
            for number in range(4):
                rows = torch.where(expert == number)[0]
                made[rows] = x[rows] @ self.experts[number]
            return made * share[:, None]
        place = (nn.functional.one_hot(expert, 4).cumsum(0).gather(1, expert[:, None]) - 1)[:, 0]
        at = expert, place.clamp(max=self.capacity - 1)
        sent = torch.zeros(4, self.capacity, 6).index_put(at, x * (place < self.capacity)[:, None], accumulate=True)
        return torch.bmm(sent, self.experts)[at] * share[:, None]


def test_experts_need_a_fixed_capacity() -> None:
    found = graph(Experts(capacity=2))
    assert found.flops[found.canonical_kind.among(["batch_matmul"])].tolist() == [2 * 4 * 2 * 6 * 6] * 2
    with pytest.raises(
        ValueError, match=r"nonzero.* at .*test_torch_optimizers.py:\d+ .*; keep shapes fixed \(a router of experts: top k,"
    ):
        graph(Experts(capacity=None))


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForMaskedLM": ("BertConfig", SMALL),
    "LlamaForCausalLM": ("LlamaConfig", SMALL),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100, "bos_token_id": 0, "eos_token_id": 0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_of_hugging_face_by_class_and_configuration(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config, settings = MODELS[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    ids = torch.zeros(2, 16, dtype=torch.int64)
    found = graph(model, None, {"input_ids": ids, "labels": ids}, optimizer=torch.optim.AdamW(model.parameters()), clip_norm=1.0)
    assert len(updates(found)) == sum(parameter.requires_grad for parameter in model.parameters())
    assert TorchInference(model, {"input_ids": ids}).computation_graph("n").num_ops < found.num_ops
