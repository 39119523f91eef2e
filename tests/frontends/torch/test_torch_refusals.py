"""What torch can't trace is refused in one line that names the line of the module's code, and torch's own noise stays away."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn
from torch.profiler import record_function

from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import inference


class Decides(nn.Linear):
    """Looks at a value."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (torch's name)
        y = super().forward(input)
        return y * 2 if y.sum() > 0 else y


class Branches(nn.Linear):
    """Runs one of two parts of itself."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        y = super().forward(input)
        return torch.cond(y.sum() > 0, lambda y: y * input.shape[0], lambda y: y @ self.weight, (y,))


class Named(nn.Linear):
    """Notes for torch's profiler what it does."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        with record_function("named"):
            return super().forward(input)


def summed(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).sum()


def attempt(training: bool, module: nn.Module, x: Tensor) -> TracedStep:
    return training_step(module, summed, (x,), name="small") if training else inference(module, (x,), name="small")


@pytest.mark.parametrize("training", [True, False])
def test_a_decision_by_values_is_refused_with_its_line(training: bool) -> None:
    where = r"needs the values of its tensors.* at .*test_torch_refusals.py:\d+ \(return y \* 2 if y.sum\(\) > 0 else y\); decide by"
    with pytest.raises(ValueError, match=where) as refused:
        attempt(training, Decides(4, 4), torch.zeros(3, 4))
    assert "\n" not in str(refused.value)


def test_a_part_of_the_module_that_is_one_op_is_refused_by_the_name_of_that_op() -> None:
    refusal = r"module: cond: cond runs functions as one op, and such ops have no cost; decide by .*"
    with pytest.raises(ValueError, match=refusal) as refused:
        inference(Branches(4, 4), (torch.zeros(3, 4),), name="small")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("training", [True, False])
def test_torch_logs_no_traceback_of_what_it_refuses(training: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return torch._grouped_mm(input, self.weight)  # whose shapes torch checks by a Python function that it logs

    with pytest.raises((ValueError, RuntimeError)):
        attempt(training, Wrong(4, 4), torch.zeros(3, 4))
    assert [record.message for record in caplog.records if record.levelno > logging.WARNING] == []


class Splits(nn.Linear):
    """Has a kernel look at a value."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input).tensor_split(torch.tensor([1, 2]))[0]


class Breaks(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input) @ input[0]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("make", "said"), [(Splits, "a kernel needs the values of its tensors"), (Breaks, "RuntimeError: size mismatch")])
def test_what_a_module_fails_with_is_said_with_its_line(training: bool, make: Callable[[int, int], nn.Module], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^module: {said}[^\n]* at [^\n]*test_torch_refusals.py:[^\n]*super\(\)[^\n]*$"):
        attempt(training, make(3, 4), torch.ones(2, 3))


class Holds(nn.Module):
    """A sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))
        self.register_buffer("links", torch.eye(3).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.links, x @ self.weight)


class Makes(nn.Linear):
    """A sparse tensor on the way."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return super().forward(input).to_sparse().to_dense()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("make", "x", "said"),
    [
        (Holds, torch.ones(3, 3), "module: links: has the layout sparse_coo; "),
        (lambda: Makes(3, 3), torch.ones(3, 3), "module: _to_sparse: has the layout sparse_coo; "),
        (lambda: nn.Linear(3, 3), torch.eye(3).to_sparse(), "inputs: 0: has the layout sparse_coo; "),
    ],
)
def test_sparse_tensors_are_refused(training: bool, make: Callable[[], nn.Module], x: Tensor, said: str) -> None:
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match=f"^{said}a step has strided .dense. tensors alone$"):
        attempt(training, make(), x)


def test_an_lstm_is_traced_without_a_warning() -> None:
    with warnings.catch_warnings(action="error"):
        training_step(nn.LSTM(4, 4), lambda module, x: module(x)[0].sum(), (torch.zeros(2, 3, 4),), name="small")


@pytest.mark.parametrize("training", [True, False])
def test_notes_for_the_profiler_are_no_ops(training: bool) -> None:
    noted, plain = (attempt(training, made(4, 4), torch.zeros(3, 4)) for made in (Named, nn.Linear))
    assert noted.graph.sha256 == plain.graph.sha256


@pytest.mark.parametrize("training", [True, False])
def test_a_parameter_without_a_shape_is_refused(training: bool) -> None:
    with pytest.raises(ValueError, match="module: weight: has no shape before the first call of its layer"):
        attempt(training, nn.LazyLinear(4), torch.zeros(3, 4))


WRONG = """
import torch
from gnnplace.frontends.torch.step import TorchInference, TorchStep
module, loss, x = torch.nn.Linear(4, 4), lambda module, x: module(x).sum(), torch.zeros(3, 4)
for build in (
    lambda: TorchStep(loss, loss, (x,)), lambda: TorchStep(module, "sum", (x,)), lambda: TorchStep(module, loss, x),
    lambda: TorchStep(module, loss, "x"), lambda: TorchStep(module, loss, (x,), "rmsprob"), lambda: TorchStep(module, loss, (x,), 3),
    lambda: TorchStep(module, loss, (x,), torch.optim.SGD([x])), lambda: TorchStep(module, loss, (x,), lambda parameters: 3),
    lambda: TorchStep(module, loss, (x,), "lbfgs"), lambda: TorchStep(module, loss, (x,), accumulate=4),
    lambda: TorchStep(module, loss, (x,), clip_norm=0.0), lambda: TorchStep(module, None, (x,)).traced("x"),
    lambda: TorchStep(torch.nn.ReLU(), loss, (x,)), lambda: TorchInference(loss, (x,)), lambda: TorchInference(module, x),
    lambda: TorchStep(module, loss, (x,), micro_batches="3"), lambda: TorchInference(module, (x,), micro_batches=3.0),
):
    try:
        build()
    except ValueError as error:
        print(error)
"""
REFUSED = (
    "module: a function is no torch.nn.Module",
    "loss: a str is no function; give one to be called as loss(module, *inputs)",
    "inputs: a Tensor is no sequence or mapping; give a single tensor x as (x,)",
    "inputs: a str is no sequence or mapping; give a single tensor x as (x,)",
    "optimizer: 'rmsprob' is no name; nearest is 'rmsprop'; choose from adadelta, adafactor, adagrad, adam, adamax, adamw, asgd, lbfgs, ",
    "optimizer: a int is no name, optimiser, or function that returns one for parameters",
    "optimizer: SGD updates a parameter that the module has not; build it of module.parameters()",
    "optimizer: returned a int for the parameters, which is no torch.optim.Optimizer",
    "optimizer: LBFGS evaluates the loss several times in a step, so its step is no update of each parameter; give another, such as ",
    "accumulate: 4; give micro_batches=, and the whole batch as inputs, which is split",
    "clip_norm: 0.0 is not above 0; None clips nothing",
    "loss: the module returns a tensor without a scalar loss; give a function loss(module, *inputs), or the inputs it needs",
    "module: has no parameter that requires a gradient, so there is no step to trace",
    "module: a function is no torch.nn.Module",
    "inputs: a Tensor is no sequence or mapping; give a single tensor x as (x,)",
    "micro_batches: '3' is no number of micro-batches; an integer of at least 1",
    "micro_batches: 3.0 is no number of micro-batches; an integer of at least 1",
)


def test_what_makes_no_step_is_refused_where_it_is_made() -> None:
    """In a process of its own, as a user has it: here beartype would refuse it first."""
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert [line.startswith(rule) for line, rule in zip(done.stdout.splitlines(), REFUSED, strict=True)] == [True] * len(REFUSED), (
        done.stdout
    )


class SkipsLayers(nn.Module):
    """Skips a layer at random, as transformers' models with LayerDrop do."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.layer, self.config = nn.Linear(4, 4), SimpleNamespace(encoder_layerdrop=share, decoder_layerdrop=0.0)
        self.layerdrop = share

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.rand([]) < self.layerdrop:
            return x
        return self.layer(x)


def test_a_refusal_of_layerdrop_names_its_knob() -> None:
    with pytest.raises(ValueError, match=r"; layers are skipped at random: build the module with config\.encoder_layerdrop=0$"):
        attempt(True, SkipsLayers(0.1), torch.zeros(3, 4))
    attempt(False, SkipsLayers(0.1), torch.zeros(3, 4))


def test_a_refusal_names_the_line_of_a_library_and_that_of_its_user() -> None:
    library: dict[str, Callable[[Tensor], Tensor]] = {}
    exec(compile("def chosen(x):\n    return x[x > 0]", "/usr/lib/site-packages/library.py", "exec"), library)

    class Uses(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return library["chosen"](super().forward(input))

    place = (
        r" at /usr/lib/site-packages/library.py:2 \(.*\), "
        r"called at [^\n]*test_torch_refusals.py:\d+ \(return library[^\n]*; keep sizes fixed"
    )
    with pytest.raises(ValueError, match=place):
        attempt(False, Uses(4, 4), torch.zeros(3, 4))


def test_arrays_are_refused_as_values() -> None:
    class Leaves(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return super().forward(input) * input.numpy().sum()

    with pytest.raises(ValueError, match=r"^module: numpy\(\) needs the values[^\n]*; compute with tensors in place of NumPy's arrays$"):
        attempt(False, Leaves(4, 4), torch.zeros(3, 4))
