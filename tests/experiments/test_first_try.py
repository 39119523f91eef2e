"""The sweep "placed at first try": a sample of it, its lists, its limits, and that it can find what is wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from experiments.first_try import counter, environment, summary, sweep, trial
from experiments.first_try.cases import Case, Kind, TorchCase, adamw
from experiments.first_try.limits import limited
from experiments.first_try.plain import Measured
from experiments.first_try.sources import SOURCES, source
from experiments.first_try.trial import Outcome, tried
from gnnplace.frontends.torch.step import TorchInference

SAMPLE = [
    ("torch_modules", "nn.Conv2d 0", "training", "placed"),
    ("torch_modules", "nn.LazyConv2d 0", "training", "placed"),
    ("torch_modules", "nn.LSTM 0", "training", "placed"),
    ("torch_modules", "nn.ReLU 0", "training", "placed"),
    ("torch_optimizers", "AdamW 0", "training", "placed"),
    ("torch_optimizers", "LBFGS 0", "training", "refused"),
    ("torch_optimizers", "SparseAdam 0", "training", "refused"),
    ("exportdb", "cond_closed_over_variable", "inference", "refused"),
    ("exportdb", "list_unpack", "inference", "placed"),
    ("pyg_convolutions", "SAGEConv", "training", "placed"),
    ("pyg_convolutions", "CuGraphGATConv", "training", "excluded"),
    ("onnx_files", "node/test_gemm_default_no_bias", "inference", "placed"),
    ("onnx_files", "light/light_squeezenet", "inference", "placed"),
    ("transformers_types", "bert", "training", "placed"),
    ("transformers_types", "llama", "inference", "placed"),
    ("torchvision_models", "resnet18", "training", "placed"),
    ("timm_models", "test_vit", "inference", "placed"),
]
NEEDS = {"torchvision_models": "torchvision", "timm_models": "timm", "onnx_files": "onnxruntime", "transformers_types": "transformers"}


@pytest.mark.slow
@pytest.mark.parametrize(("origin", "name", "kind", "word"), SAMPLE, ids=lambda value: str(value).replace("/", "-"))
def test_a_sample_comes_to_what_it_should(origin: str, name: str, kind: Kind, word: str) -> None:
    if origin in NEEDS and importlib.util.find_spec(NEEDS[origin]) is None:
        pytest.skip(f"needs {NEEDS[origin]}")
    inputs = source(origin)
    assert name in inputs.names()
    answer = limited(lambda ready: list(tried(inputs, name, kind, ready)), sweep.SECONDS, sweep.MEMORY_BYTES)
    assert answer.value is not None and answer.value[0] == word, answer


class Small:
    """A source of one input."""

    KINDS = ("inference", "training")

    def __init__(self, make: Callable[[], TorchCase]) -> None:
        self._make = make

    def names(self) -> list[str]:
        return ["small"]

    def case(self, name: str, kind: Kind) -> Case:
        return self._make()


class Decides(nn.Linear):
    """Decides by its input; `OfWeight` by its parameters, whose values no example tells."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) if input.sum() > 0 else input


class OfWeight(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) if self.weight.sum() > -1e9 else input


class InNumPy(nn.Linear):
    """Computes outside of PyTorch."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(torch.from_numpy(input.numpy() + 1))


class DropsLayers(nn.Linear):
    """Skips itself at random, by a setting of its own."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.layerdrop, self.other = 0.9, nn.Linear(3, 3)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        hidden = self.other(input)
        skipped = self.training and self.layerdrop > 0 and torch.rand([]) < self.layerdrop
        return hidden if skipped else super().forward(hidden)


@pytest.mark.slow
def test_what_pytorch_refuses_is_excluded_and_what_only_we_refuse_is_refused() -> None:
    wrong = Small(lambda: TorchCase(nn.Linear(3, 2), (torch.zeros(2, 2),)))
    assert tried(wrong, "small", "inference").word == "excluded"
    ready: list[bool] = []
    outcome = tried(Small(lambda: TorchCase(InNumPy(3, 3), (torch.ones(2, 3),))), "small", "inference", lambda: ready.append(True))
    assert outcome.word == "refused" and "numpy() needs the values" in outcome.why and ready == [True]


@pytest.mark.parametrize("kind", ["inference", pytest.param("training", marks=pytest.mark.slow)])
def test_what_is_placed_with_the_option_says_so(kind: Kind) -> None:
    assert tried(Small(lambda: TorchCase(Decides(3, 3), (torch.ones(2, 3),))), "small", kind) == ("placed", "sizes of the example")
    of_weight = tried(Small(lambda: TorchCase(OfWeight(3, 3), (torch.ones(2, 3),))), "small", kind)
    assert of_weight == ("placed", "sizes of the example, sizes of one run")
    outcomes = {"exportdb": {"a, inference": ["placed", "sizes of the example"], "b, inference": ["placed", ""]}}
    (figure,) = summary.figures(outcomes, {})
    assert (figure.percent, figure.percent_as_they_come) == (100.0, 50.0)


def test_what_is_placed_without_layer_drop_is_compared_without_it() -> None:
    case = Small(lambda: TorchCase(DropsLayers(), (torch.ones(2, 3),), optimizer=adamw))
    assert tried(case, "small", "training") == ("placed", "no LayerDrop")


def test_bytes_flops_and_silent_zeros_are_told() -> None:
    graph = TorchInference(nn.Linear(3, 4), (torch.zeros(2, 3),)).computation_graph("small")
    right = Measured(64, {"aten.addmm": 48})
    assert trial.difference(graph, right) == ""
    assert trial.difference(graph, right._replace(persistent_bytes=60)).startswith("persistent bytes: 64, the framework has 60")
    less = trial.difference(graph, right._replace(flops={"aten.addmm": 47}))
    assert less == "flops: 48 of products, PyTorch counts 47; most differs 48 and 47 of aten.addmm"
    silent = replace(graph, flops=graph.flops * 0)
    assert trial.difference(silent, Measured(64, None)).endswith("is a aten.addmm of 0 FLOPs")


def test_a_process_that_hangs_or_dies_is_told_apart() -> None:
    def late(ready: Callable[[], None]) -> str:
        ready()
        time.sleep(60)
        return ""

    hung, early = limited(late, 0.3, 2**40), limited(lambda ready: time.sleep(60), 0.3, 2**40)
    died = limited(lambda ready: [ready(), os.kill(os.getpid(), signal.SIGKILL)], 30, 2**40)
    assert (sweep._outcome(hung).word, sweep._outcome(early).word) == ("hung", "excluded")
    assert sweep._outcome(died) == Outcome("crashed", "ended by SIGKILL")
    assert limited(lambda ready: {"a": 1}, 30, 2**40).value == {"a": 1}


def test_an_error_says_nothing_of_the_machine() -> None:
    error = ValueError(f"a at /somewhere/lib/site-packages/lib/a.py:3 and\n {Path(environment.REPOSITORY, 'experiments', 'b.py')}")
    assert trial.line(error) == "a at lib/a.py:3 and experiments/b.py"
    assert trial.line(ValueError("from a/b/simple/model.onnx failed: /build/core/gru.h:56 f")) == "from model.onnx failed: gru.h:56 f"


def test_memory_is_limited() -> None:
    def hungry(ready: Callable[[], None]) -> str:
        try:
            return str(len(bytearray(2**42)))
        except MemoryError:
            return "refused"

    assert limited(hungry, 30, 2**41).value == "refused"


@pytest.mark.parametrize(
    ("module", "x", "without", "with_rules"),
    [
        (nn.Conv2d(4, 8, 3, groups=4), torch.zeros(1, 4, 6, 6), 2304 + 9216 + 2304, 3 * 2304),
        (nn.ConvTranspose2d(4, 8, 3, groups=4), torch.zeros(1, 4, 6, 6), None, 3 * 2 * 36 * 4 * 2 * 9),
        (nn.LSTM(4, 8), torch.zeros(1, 2, 4), 0, 3 * 2 * 2 * 32 * (4 + 8) - 2 * 2 * 32 * 8),  # no gradient of the first state
    ],
)
def test_the_counter_is_mended(module: nn.Module, x: Tensor, without: int | None, with_rules: int) -> None:
    x.requires_grad_()
    with FlopCounterMode(display=False) as plain:
        _first(module(x)).sum().backward()
    with counter.counting() as counted:
        _first(module(x)).sum().backward()
    assert without is None or plain.get_total_flops() == without
    assert counted.get_total_flops() == with_rules


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (lambda: torch.linalg.solve_triangular(torch.eye(5), torch.ones(5, 3), upper=False), 5 * 5 * 3),
        (lambda: torch.linalg.solve_triangular(torch.eye(5), torch.ones(3, 5), upper=True, left=False), 3 * 5 * 5),
        (lambda: torch.cdist(torch.zeros(30, 3), torch.ones(40, 3)), 2 * 30 * 40 * (3 + 2)),
        (lambda: nn.Bilinear(3, 4, 5, bias=False)(torch.zeros(2, 3), torch.zeros(2, 4)), 3 * 2 * 3 * 4 * 5),
    ],
    ids=["triangular", "triangular, right", "distances", "bilinear"],
)
def test_the_counter_counts_products_in_one_op(product: Callable[[], Tensor], expected: int) -> None:
    with counter.counting() as counted:
        product()
    assert counted.get_total_flops() == expected


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def test_every_rule_of_the_counter_has_its_reason() -> None:
    reasons = counter.reasons()
    assert reasons.keys() == {*counter._RULES, *counter.APART} and list(reasons) == sorted(reasons)
    assert all(len(why) > 20 for why in reasons.values())


def test_every_exclusion_has_its_reason() -> None:
    listed = summary.exclusions()
    assert list(listed) == sorted(listed) and set(listed) <= set(SOURCES)
    for of in listed.values():
        assert list(of) == sorted(of) and all(why.strip() for why in of.values())


def test_an_exclusion_that_is_not_listed_counts() -> None:
    outcomes = {"exportdb": {"a, inference": ["placed", ""], "b, inference": ["excluded", "why"], "c, inference": ["excluded", "why"]}}
    (figure,) = summary.figures(outcomes, {"exportdb": {"b, inference": "why"}})
    assert (figure.tried, figure.listed, figure.percent) == (2, 1, 50.0)


def test_refusals_are_counted_without_their_places() -> None:
    why = "module: aten.nonzero.default needs the values at lib/loop.py:{} (edge[mask]); keep shapes fixed"
    outcomes = {f"{n}, inference": ["refused", why.format(n)] for n in range(3)} | {"d, inference": ["placed", ""]}
    assert "| 3 | module: aten.nonzero.default needs the values (`edge[mask]`) | 0, inference |" in summary.table({"exportdb": outcomes})


def test_an_optimiser_counts_if_all_its_settings_are_placed() -> None:
    outcomes = {"A 0, training": ["placed"], "A 1, training": ["excluded"], "B 0, training": ["placed"], "B 1, training": ["refused"]}
    assert summary.optimizer_kinds(outcomes) == (["A"], ["B"])


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def one(inputs: Any, name: str, kind: Kind) -> tuple[Outcome, float]:
        calls.append(f"{name}, {kind}")
        return Outcome("refused", "why"), 0.1

    small = Small(lambda: TorchCase(nn.Linear(2, 2), (torch.zeros(1, 2),)))
    monkeypatch.setattr(sweep, "FOLDER", tmp_path)
    monkeypatch.setattr(sweep, "source", lambda name: small)
    monkeypatch.setattr(sweep, "one", one)
    monkeypatch.setattr(sweep, "warm", lambda: None)
    for again, expected in ((None, 2), (None, 2), (["placed"], 2), (["refused"], 4), ([], 6)):
        sweep.sweep("small", again, 1)
        assert len(calls) == expected
    saved = json.loads((tmp_path / "small.json").read_text())
    assert saved["outcomes"]["small, training"][:2] == ["refused", "why"] and "torch" in saved["provenance"]["versions"]


def test_the_environment_has_the_lock_and_what_goes_with_its_pytorch(tmp_path: Path) -> None:
    first, package, alone = environment.commands(tmp_path)
    assert first[-1].startswith("torch==") and package[-1].endswith("[all]") and str(environment.LOCK) in package
    assert alone[-3:] == ["--no-deps", "torchvision==0.28.0", "timm==1.0.31"]
