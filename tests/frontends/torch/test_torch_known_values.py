"""Sizes by values: those of constants always, those of inputs with sizes="example", and what nothing tells is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import placed_steps
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.frontends.torch.step import _check_sizes
from gnnplace.isolation.worker import usable_cores

needs_two_cores = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
EDGES = torch.tensor([[0, 1, 2, 2, 3, 0], [1, 1, 0, 2, 2, 3]])
OTHER = torch.tensor([[0, 1, 2, 2, 3, 0], [1, 1, 0, 2, 3, 0]])  # two more self-loops


class Graph(nn.Module):
    """Sums neighbours by a function of features and edges."""

    def __init__(self, sums: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.sums = nn.Linear(3, 3), sums

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.sums(self.linear(x), edges)


def without_loops(x: Tensor, edges: Tensor) -> Tensor:
    edges = edges[:, edges[0] != edges[1]]
    return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])


def number_of_nodes(x: Tensor, edges: Tensor) -> Tensor:
    nodes = int(edges.max()) + 1
    return x.new_zeros(nodes, 3).index_add(0, edges[1], x[edges[0]])


def masked(x: Tensor, edges: Tensor) -> Tensor:
    return x[edges[0]].masked_select((edges[0] != edges[1])[:, None])


def by_uniques(x: Tensor, edges: Tensor) -> Tensor:
    nodes, place = edges[0].unique(return_inverse=True)
    return x.new_zeros(len(nodes), 3).index_add(0, place, x[edges[1]])


def by_repeats(x: Tensor, edges: Tensor) -> Tensor:
    return x.repeat_interleave(torch.bincount(edges[1], minlength=4), 0)


def by_decision(x: Tensor, edges: Tensor) -> Tensor:
    return x[edges[0]] * 2 if (edges[0] == edges[1]).sum() > 2 else x


def written_in_place(x: Tensor, edges: Tensor) -> Tensor:
    starts = edges.new_empty(5)
    starts[:1].zero_()
    torch.cumsum(torch.bincount(edges[1], minlength=4), 0, out=starts[1:])
    mask = torch.zeros(8, dtype=torch.bool)
    mask[starts] = True
    return x.repeat(2, 1)[mask]


def split_by_list(x: Tensor, edges: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x[edges[0]].split((edges[1].bincount(minlength=4)).tolist())])


SUMS = (
    without_loops, number_of_nodes, masked, by_uniques, by_repeats, by_decision, written_in_place, split_by_list
)  # fmt: skip


def trained(net: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
    return net(x, edges).square().sum()


@needs_two_cores
@pytest.mark.slow
@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("trains", [True, False])
def test_sizes_of_the_example_give_what_pytorch_computes(sums: Callable[[Tensor, Tensor], Tensor], trains: bool) -> None:
    net, x = Graph(sums), torch.randn(4, 3)
    step: gp.TorchStep | gp.TorchInference = (
        gp.TorchStep(net, trained, (x, EDGES), sizes="example") if trains else gp.TorchInference(net, (x, EDGES), sizes="example")
    )
    plan = placed_steps.split(step, seed=3)
    assert plan.problem.graph.name == "step, sizes of the example"
    expected = trained(net, x, EDGES) if trains else net(x, EDGES)
    gradients = torch.autograd.grad(expected.sum(), list(net.parameters()))
    with gp.placed(step, plan) as model:
        result = model(x, EDGES)
        assert torch.equal(result, expected)
        if trains:
            result.backward()
            for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                assert torch.equal(parameter.grad, gradient)


@needs_two_cores
@pytest.mark.parametrize("sums", [without_loops, by_decision, number_of_nodes])
def test_other_sizes_are_refused_and_other_values_of_the_same_sizes_run(sums: Callable[[Tensor, Tensor], Tensor]) -> None:
    net, x = Graph(sums), torch.randn(4, 3)
    step = gp.TorchInference(net, (x, EDGES), sizes="example")
    other = EDGES.clamp(max=2) if sums is number_of_nodes else OTHER
    with gp.placed(step, placed_steps.split(step, seed=3)) as model:
        with pytest.raises(
            ValueError, match=r"^inputs: give [^\n]*test_torch_known_values.py:\d+ [^\n]*, and the step was placed with [^\n]*$"
        ):
            model(x, other)
        turned = EDGES.flip(1)
        assert torch.equal(model(x, turned), net(x, turned))


@pytest.mark.parametrize("sums", SUMS)
def test_without_the_option_sizes_by_values_are_refused_by_its_name(sums: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(
        ValueError, match=r'^module: [^\n]*test_torch_known_values.py:\d+[^\n]*sizes="example" takes them from the example inputs$'
    ):
        gp.TorchInference(Graph(sums), (torch.randn(4, 3), EDGES)).computation_graph("net")


def test_a_graph_is_named_after_its_example_only_if_a_size_is_of_it() -> None:
    net = nn.Linear(3, 3)
    assert gp.TorchInference(net, (torch.zeros(4, 3),), sizes="example").computation_graph("net").name == "net"
    traced = gp.TorchInference(Graph(masked), (torch.zeros(4, 3), EDGES), sizes="example").traced("net")
    assert traced.graph.name == "net, sizes of the example"
    assert (
        gp.TorchInference(Graph(masked), (torch.zeros(4, 3), EDGES), sizes="example").traced(traced.graph.name).graph.name
        == traced.graph.name
    )


def test_what_a_parameter_decides_no_example_tells() -> None:
    class Chooses(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            y = super().forward(input)
            return y[y > 0]

    for inputs in ((torch.ones(2, 4),), (torch.ones(2, 4, device="meta"),)):
        with pytest.raises(ValueError, match=r"^module: aten.nonzero[^\n]*\(return y\[y > 0\]\); these depend on parameters or random"):
            gp.TorchInference(Chooses(4, 4), inputs, sizes="example").computation_graph("net")


def test_values_that_an_unknown_write_has_replaced_are_unknown() -> None:
    class Overwrites(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            counts = torch.zeros(4)
            counts.view(2, 2)[0] = super().forward(input)[0, :2]
            return input[: int(counts.sum())]

    with pytest.raises(ValueError, match="_local_scalar_dense"):
        gp.TorchInference(Overwrites(4, 4), (torch.ones(2, 4),), sizes="example").computation_graph("net")


@pytest.mark.parametrize("trains", [True, False])
def test_values_of_constants_need_no_option(trains: bool) -> None:
    class Takes(nn.Linear):
        rows = torch.tensor([True, False, True])

        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            lengths = torch.tensor([1, 2])
            return super().forward(input)[self.rows][: int(lengths.max())].repeat_interleave(lengths, 0)

    net, x = Takes(4, 4), torch.ones(3, 4)
    step = gp.TorchStep(net, lambda net, x: net(x).sum(), (x,)) if trains else gp.TorchInference(net, (x,))
    graph = step.computation_graph("net")
    assert graph.name == "net"
    assert (3, 4) in [graph.shape(output) for output in range(len(graph.output_bytes))]


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^sizes: 'inputs' is none of 'example', 'run' and None$"):
        _check_sizes("inputs")


class Guarded(nn.Module):
    """Repairs numbers that are not finite, as models of transformers do while they train."""

    def __init__(self, asks: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.asks = nn.Linear(3, 3), asks

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(x)
        return hidden.clamp(-1, 1) @ hidden.mT if self.asks(hidden) else hidden


ASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "isfinite": lambda x: not torch.isfinite(x).all(),
    "isnan": lambda x: x.isnan().any(),
    "isnan, counted": lambda x: x.isnan().sum() > 0,
    "isinf": lambda x: torch.isinf(x).any() or x.isposinf().any(),
    "compared with inf": lambda x: (x == torch.inf).any() or not (x != -torch.inf).all(),
    "unequal to itself": lambda x: (x != x).any(),
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_numbers_of_the_example_are_finite(asks: Callable[[Tensor], Tensor]) -> None:
    module, inputs = Guarded(asks), (torch.ones(2, 3),)
    with pytest.raises(ValueError, match='sizes="example"'):
        gp.TorchStep(module, lambda m, x: m(x).sum(), inputs).computation_graph("step")
    step = gp.TorchStep(module, lambda m, x: m(x).sum(), inputs, sizes="example").computation_graph("step")
    assert "aten.clamp" not in set(map(str, step.kind)) and "aten.addmm" in set(map(str, step.kind))


def masked_by(x: Tensor) -> Tensor:
    return x.masked_fill(x > 0, -torch.inf)


MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "compared with -inf": lambda x: (masked_by(x) == -torch.inf).any(),
    "compared with a number": lambda x: (x == 0.0).any(),
    "isinf": lambda x: masked_by(x).isinf().any(),
    "isfinite": lambda x: not (masked_by(x) * 2).T.isfinite().all(),
    "added": lambda x: (x + torch.full((2, 3), -torch.inf).triu(1)).isneginf().any(),
}


@pytest.mark.parametrize("asks", MASKS.values(), ids=MASKS)
def test_nothing_is_assumed_of_a_mask(asks: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="depend on parameters"):
        gp.TorchInference(Guarded(asks), (torch.ones(2, 3),), "example").computation_graph("step")


def test_a_softmax_ends_a_mask() -> None:
    guarded = Guarded(lambda x: not masked_by(x).softmax(-1).isfinite().all())
    graph = gp.TorchInference(guarded, (torch.ones(2, 3),), "example").computation_graph("step")
    assert "clamp" not in graph.op_names and "_softmax" in graph.op_names


def test_no_advice_names_the_option_that_was_given() -> None:
    x = torch.ones(2, 3, device="meta")
    for sizes in ("example", "run"):
        with pytest.raises(ValueError) as refused:
            gp.TorchInference(Guarded(lambda x: x.sum() > 0), (x,), sizes).computation_graph("step")
        assert ('sizes="run"' in str(refused.value)) == (sizes == "example")
        assert 'sizes="example"' not in str(refused.value)


class Detector(nn.Module):
    """Keeps the rows that score highest, and adds a random number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(3, 1)
        with torch.no_grad():
            self.score.weight.copy_(torch.tensor([[1.0, 0.0, 0.0]]))
            self.score.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)
        kept = (x * scores)[scores[:, 0] > 0]
        return kept[: 1 + int(torch.rand(()) * 0.5)] @ kept.mT


ROWS = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [2, 1, 0], [-2, 1, 0], [3, 1, 0]])


def test_sizes_of_one_run_depend_on_parameters_and_random_numbers() -> None:
    module, before = Detector(), torch.get_rng_state()
    with pytest.raises(ValueError, match='plan with sizes="run"'):
        gp.TorchInference(module, (ROWS,), "example").computation_graph("net")
    graph = gp.TorchInference(module, (ROWS,), "run").computation_graph("net")
    assert graph.name == "net, sizes of one run"
    product = next(op for op in range(graph.num_ops) if graph.kind[op] == "aten.mm")
    assert (graph.shape(int(graph.output_ptr[product])), graph.flops[product]) == ((1, 3), 2 * 3 * 3)
    step = gp.TorchStep(module, lambda net, x: net(x).sum(), (ROWS,), sizes="run")
    assert step.computation_graph("step").name == "step, sizes of one run"
    assert module.score.bias.item() == 0 and module.score.bias.grad is None
    assert torch.equal(before, torch.get_rng_state())


def test_one_run_draws_the_same_numbers_whatever_was_drawn_before() -> None:
    class Draws(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:  # noqa: A002
            return super().forward(input)[: int(torch.rand(()) * 1000)]

    found = set()
    for seed in range(3):
        torch.manual_seed(seed)
        found.add(gp.TorchInference(Draws(2, 2), (torch.ones(1000, 2),), "run").computation_graph("net").output_bytes.tobytes())
    assert len(found) == 1


def detecting() -> list[gp.TorchInference | gp.TorchStep]:
    return [
        gp.TorchInference(Detector(), (ROWS,), "run"),
        gp.TorchStep(Detector(), lambda net, x: net(x).sum(), (ROWS,), sizes="run"),
    ]


@pytest.mark.parametrize("step", detecting(), ids=["inference", "training"])
def test_a_step_with_sizes_of_one_run_is_planned_and_not_run(step: gp.TorchStep | gp.TorchInference) -> None:
    plan = gp.place(gp.problem(step, "cpu-2"), "heft")
    with pytest.raises(ValueError, match=r"^step: was captured with sizes=\"run\", so .* at .*\(kept = \(x \* scores"):
        gp.placed(step, plan)
