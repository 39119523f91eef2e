"""The PyTorch front-end on small modules whose numbers are worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import gnnplace as gp
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.graph import CONTROL, NONE, ComputationGraph

MATMUL_KINDS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight", "attention")


def summed(module: nn.Module, *inputs: Tensor) -> Tensor:
    return module(*inputs).sum()


def step_of(module: nn.Module, *inputs: Tensor, optimizer: str = "adam") -> TracedStep:
    return training_step(module, summed, inputs, optimizer=optimizer, name="small")


def ops(graph: ComputationGraph, kind: str) -> list[int]:
    return np.flatnonzero(graph.kind.among([kind])).tolist()


def group(graph: ComputationGraph, name: str) -> list[int]:
    return np.flatnonzero(graph.colocation.among([name])).tolist()


def products(graph: ComputationGraph, phase: str) -> list[int]:
    return np.flatnonzero(graph.canonical_kind.among(["matmul"]) & graph.phase.among([phase])).tolist()


def consumers(graph: ComputationGraph, op: int, output: int) -> list[int]:
    return graph.edge_dst[(graph.edge_src == op) & (graph.edge_output == output)].tolist()


def torch_flops(module: nn.Module, *inputs: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        summed(module, *inputs).backward()
    return counter.get_total_flops()


def matmul_flops(graph: ComputationGraph) -> int:
    return int(graph.flops[graph.canonical_kind.among(MATMUL_KINDS)].sum())


@pytest.fixture(scope="module")
def two_linear() -> ComputationGraph:
    """Linear(4, 8), ReLU, Linear(8, 2) on 16 rows, Adam."""
    return step_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(16, 4)).graph


def test_linear_flops_and_phases(two_linear: ComputationGraph) -> None:
    by_phase = {
        phase: sorted(two_linear.flops[products(two_linear, phase)].tolist()) for phase in ("forward", "backward_data", "backward_weight")
    }
    first, second = 2 * 16 * 4 * 8, 2 * 16 * 8 * 2
    assert by_phase == {"forward": [second, first], "backward_data": [second], "backward_weight": [second, first]}


def test_elementwise_counts_its_weight_per_element(two_linear: ComputationGraph) -> None:
    (relu,) = ops(two_linear, "aten.relu")
    (gradient,) = ops(two_linear, "aten.threshold_backward")
    assert two_linear.flops[[relu, gradient]].tolist() == [16 * 8, 16 * 8]


def test_outputs_have_shape_dtype_and_bytes(two_linear: ComputationGraph) -> None:
    (relu,) = ops(two_linear, "aten.relu")
    output = int(two_linear.output_ptr[relu])
    assert two_linear.shape(output) == (16, 8)
    assert two_linear.output_dtype[output] == "float32"
    assert two_linear.output_bytes[output] == 4 * 16 * 8


def test_parameters_persist_with_adam_state(two_linear: ComputationGraph) -> None:
    persistent = {two_linear.op_names[op]: int(two_linear.persistent_bytes[op]) for op in ops(two_linear, "parameter")}
    counter = 4
    assert persistent == {
        "0.weight": 3 * 128 + counter,
        "0.bias": 3 * 32 + counter,
        "2.weight": 3 * 64 + counter,
        "2.bias": 3 * 8 + counter,
    }
    assert two_linear.persistent_bytes.sum() == sum(persistent.values())


def test_reads_and_updates_alias_the_parameter_and_stand_with_it(two_linear: ComputationGraph) -> None:
    variable = two_linear.op_names.index("0.weight")
    read = two_linear.op_names.index("0.weight/read")
    members = group(two_linear, "0.weight")
    assert [two_linear.kind[op] for op in members] == ["parameter", "read", "aten._fused_adam_"]
    root = two_linear.output_ptr[variable]
    assert two_linear.output_bytes[root] == 0
    for op in (read, members[2]):
        assert two_linear.output_root[two_linear.output_ptr[op]] == root
    assert two_linear.output_bytes[two_linear.output_ptr[read]] == 4 * 4 * 8


def test_update_costs_and_phase(two_linear: ComputationGraph) -> None:
    update = group(two_linear, "0.weight")[2]
    size = 4 * 8
    assert two_linear.phase[update] == "update"
    assert two_linear.canonical_kind[update] == "update"
    assert two_linear.flops[update] == 12 * size
    counter = 4
    assert two_linear.bytes_accessed[update] == 7 * 4 * size + counter  # all are read; parameter and moments are written


def test_update_follows_every_reader_of_its_parameter(two_linear: ComputationGraph) -> None:
    """The second weight is also read by the gradient of its input, on whose result its own gradient does not depend."""
    update = group(two_linear, "2.weight")[2]
    (reader,) = products(two_linear, "backward_data")
    assert consumers(two_linear, reader, CONTROL) == [update]
    assert (two_linear.edge_output == CONTROL).sum() == 1


def test_backward_ops_have_the_layer_of_their_forward(two_linear: ComputationGraph) -> None:
    layer = {two_linear.op_names[op]: two_linear.layer[op] for op in range(two_linear.num_ops)}
    (gradient,) = ops(two_linear, "aten.threshold_backward")
    assert two_linear.layer[gradient] == "1"
    assert [two_linear.layer[op] for op in products(two_linear, "backward_data")] == ["2"]
    assert sorted(two_linear.layer[op] for op in products(two_linear, "backward_weight")) == ["0", "2"]
    assert layer["0.weight"] == layer["0.weight/read"] == "0"
    assert layer["sum_1"] == "loss"


def test_views_launch_nothing_and_equal_views_are_one(two_linear: ComputationGraph) -> None:
    """A transposed weight's transpose is the weight: 2 transposes of weights, 2 of gradients remain."""
    transposes = ops(two_linear, "aten.t")
    assert len(transposes) == 4
    assert not two_linear.kernel[transposes].any()
    assert (two_linear.output_alias[two_linear.output_ptr[transposes]] != NONE).all()
    assert not two_linear.kernel[two_linear.canonical_kind.among(["variable", "input"])].any()
    assert not ops(two_linear, "aten.detach")


def test_expanded_tensors_have_the_bytes_of_what_is_stored(two_linear: ComputationGraph) -> None:
    (expand,) = ops(two_linear, "aten.expand")
    assert two_linear.shape(int(two_linear.output_ptr[expand])) == (16, 2)
    assert two_linear.output_bytes[two_linear.output_ptr[expand]] == 4


def test_the_loss_is_the_only_result(two_linear: ComputationGraph) -> None:
    assert [two_linear.op_names[op] for op in two_linear.output_op[two_linear.output_is_result]] == ["sum_1"]


def test_block_is_the_first_number_of_the_layer(two_linear: ComputationGraph) -> None:
    assert two_linear.block[two_linear.op_names.index("2.weight")] == 2
    assert two_linear.block[two_linear.op_names.index("sum_1")] == NONE


def test_sgd_keeps_no_state() -> None:
    graph = step_of(nn.Linear(4, 8), torch.zeros(16, 4), optimizer="sgd").graph
    update = ops(graph, "aten._fused_sgd_")[0]
    assert graph.persistent_bytes[graph.op_names.index("weight")] == 128
    assert graph.flops[update] == 2 * 32
    assert graph.bytes_accessed[update] == 3 * 128


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2)

    def forward(self, image: Tensor) -> Tensor:
        return functional.max_pool2d(self.second(functional.relu(self.norm(self.first(image)))), 2)


def test_convolutions_count_as_torch_counts_them() -> None:
    module, image = Convolutional(), torch.zeros(4, 3, 8, 8)
    graph = step_of(module, image).graph
    first, second = 2 * 4 * 8 * 8 * 8 * 3 * 9, 2 * 4 * 4 * 4 * 16 * 4 * 9
    assert [int(graph.flops[op]) for op in ops(graph, "aten.convolution")] == [first, second]
    backward = {graph.canonical_kind[op]: int(graph.flops[op]) for op in ops(graph, "aten.convolution_backward")}
    assert backward == {"conv_grad_input": 2 * second, "conv_grad_weight": first}
    assert matmul_flops(step_of(nn.Sequential(module.first, nn.Conv2d(8, 16, 3)), image).graph) == torch_flops(
        nn.Sequential(module.first, nn.Conv2d(8, 16, 3)), image
    )


def test_multiple_outputs_are_edges_of_their_index() -> None:
    graph = step_of(Convolutional(), torch.zeros(4, 3, 8, 8)).graph
    (norm,), (gradient,) = ops(graph, "aten.native_batch_norm"), ops(graph, "aten.native_batch_norm_backward")
    assert [consumers(graph, norm, output) for output in (1, 2)] == [[gradient], [gradient]]
    (pool,), (unpool,) = ops(graph, "aten.max_pool2d_with_indices"), ops(graph, "aten.max_pool2d_with_indices_backward")
    assert unpool in consumers(graph, pool, 1)
    assert graph.output_dtype[int(graph.output_ptr[pool]) + 1] == "int64"
    skipped = graph.output_ptr[ops(graph, "aten.convolution_backward")[1]]  # the gradient of the image is not computed
    assert graph.output_bytes[skipped] == 0
    assert not any("getitem" in kind for kind in graph.kind.values)


def test_batch_norm_writes_its_statistics_in_place() -> None:
    graph = step_of(Convolutional(), torch.zeros(4, 3, 8, 8)).graph
    (norm,) = ops(graph, "aten.native_batch_norm")
    statistics = [graph.op_names.index(f"norm.running_{name}") for name in ("mean", "var")]
    assert [graph.kind[op] for op in statistics] == ["buffer", "buffer"]
    assert graph.persistent_bytes[statistics].tolist() == [32, 32]
    assert {graph.colocation[op] for op in (norm, *statistics)} == {"norm.running_mean"}


def test_transposed_convolutions_count_as_the_convolution_that_they_invert() -> None:
    module, image = nn.ConvTranspose2d(3, 8, 3, stride=2), torch.zeros(4, 3, 5, 5)
    graph = step_of(module, image).graph
    once = 2 * 4 * 3 * 5 * 5 * 8 * 9
    assert matmul_flops(graph) == 2 * once == torch_flops(module, image)


@pytest.mark.parametrize(
    ("module", "kind", "flops"),
    [
        (nn.Softmax(dim=-1), "aten._softmax", 5 * 16 * 8),
        (nn.LayerNorm(8), "aten.native_layer_norm", 8 * 16 * 8),
        (nn.LayerNorm(8), "aten.native_layer_norm_backward", 12 * 16 * 8),
        (nn.GELU(), "aten.gelu_backward", 16 * 8),
        (nn.Flatten(), "aten.sum", 16 * 8),
    ],
)
def test_rules_per_element(module: nn.Module, kind: str, flops: int) -> None:
    graph = step_of(nn.Sequential(nn.Linear(8, 8, bias=False), module), torch.zeros(16, 8)).graph
    assert graph.flops[ops(graph, kind)].tolist() == [flops]


def test_pools_count_their_windows() -> None:
    graph = step_of(Convolutional(), torch.zeros(4, 3, 8, 8)).graph
    pooled = 4 * 16 * 2 * 2
    assert graph.flops[graph.canonical_kind.among(["pool", "pool_grad"])].tolist() == [pooled * 4, pooled * 4]


def test_nearest_upsampling_copies_and_its_gradient_sums() -> None:
    graph = step_of(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Upsample(scale_factor=2), nn.ReLU()), torch.zeros(4, 3, 5, 5)).graph
    (grown,), (summed_up,) = ops(graph, "aten.upsample_nearest2d"), ops(graph, "aten.upsample_nearest2d_backward")
    small = 4 * 8 * 5 * 5
    assert graph.flops[[grown, summed_up]].tolist() == [0, 4 * small]
    assert graph.effective_bytes_accessed[[grown, summed_up]].tolist() == [4 * 5 * small, 4 * 5 * small]


def test_losses_read_one_column_a_row() -> None:
    module = nn.Linear(8, 100)
    inputs = (torch.zeros(16, 8), torch.zeros(16, dtype=torch.int64))
    graph = training_step(module, lambda module, x, y: functional.cross_entropy(module(x), y), inputs, name="classes").graph
    (forward,), (backward,) = ops(graph, "aten.nll_loss_forward"), ops(graph, "aten.nll_loss_backward")
    rows, labels, scalar = 16 * 4, 16 * 8, 4
    assert graph.bytes_accessed[[forward, backward]].tolist() == [rows + labels + 2 * scalar, rows + labels + 16 * 100 * 4]
    assert {graph.layer[op] for op in (forward, backward)} == {"loss"}


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_two_products_forward_and_five_backward(causal: bool) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(query * self.scale, key * self.scale, value * self.scale, is_causal=causal)

    shape = (2, 3, 32, 8)
    graph = step_of(Attention(), *(torch.zeros(shape) for _ in range(3))).graph
    product = 2 * 2 * 3 * 32 * 32 * 8
    assert graph.flops[graph.canonical_kind.among(["attention"])].tolist() == [2 * product, 5 * product]


def test_batched_products_count_as_torch_counts_them() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Parameter(torch.zeros(5, 3, 4))

        def forward(self, right: Tensor) -> Tensor:
            return torch.bmm(self.left, right)

    right = torch.zeros(5, 4, 7)
    forward_and_gradient = 2 * (2 * 5 * 3 * 4 * 7)
    assert matmul_flops(step_of(Products(), right).graph) == forward_and_gradient == torch_flops(Products(), right)


def test_embedding_reads_rows_not_the_table() -> None:
    graph = step_of(nn.Embedding(1000, 8), torch.zeros(16, dtype=torch.int64)).graph
    (lookup,), (gradient,) = ops(graph, "aten.embedding"), ops(graph, "aten.embedding_dense_backward")
    assert graph.bytes_accessed[lookup] == 2 * 16 * 8 * 4 + 16 * 8
    assert graph.flops[[lookup, gradient]].tolist() == [0, 16 * 8]
    assert graph.effective_bytes_accessed[gradient] >= 1000 * 8 * 4
    assert graph.workspace_bytes[gradient] == 2 * 16 * 8
    assert graph.phase[gradient] == "backward_weight"


def test_in_place_ops_share_the_buffer_and_its_device() -> None:
    graph = step_of(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1)), torch.zeros(16, 4)).graph
    chain = [ops(graph, kind)[0] for kind in ("aten.empty_like", "aten.bernoulli_", "aten.div_")]
    roots = {int(graph.output_root[graph.output_ptr[op]]) for op in chain}
    assert roots == {int(graph.output_ptr[chain[0]])}
    assert {graph.colocation[op] for op in chain} == {graph.op_names[chain[0]]}
    assert graph.kernel[chain].all()


def test_a_writer_follows_earlier_readers_and_precedes_later_ones() -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            hidden = x @ self.weight
            row = hidden.detach()[0]
            before = row.exp()
            hidden.detach().add_(1.0)
            return (hidden * before * row.cos()).sum()

    graph = step_of(Overwrites(), torch.zeros(4, 4)).graph
    (writer,), (before,), (alias,) = ops(graph, "aten.add_"), ops(graph, "aten.exp"), ops(graph, "aten.alias")
    assert consumers(graph, before, CONTROL) == [writer] and consumers(graph, writer, CONTROL) == [alias]
    (row,) = set(consumers(graph, alias, 0)) & set(ops(graph, "aten.select"))  # taken anew, of what the writer left
    assert ops(graph, "aten.cos") == consumers(graph, row, 0)
    assert graph.colocation[writer] == graph.colocation[ops(graph, "aten.mm")[0]] is not None


def test_unused_and_frozen_parameters_stand_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    module[1].weight.requires_grad_(False)
    module[0].register_parameter("unused", nn.Parameter(torch.zeros(10)))
    graph = step_of(module, torch.zeros(16, 4)).graph
    unused, frozen = graph.op_names.index("0.unused"), graph.op_names.index("1.weight")
    assert graph.persistent_bytes[[unused, frozen]].tolist() == [40, 64]  # no gradient, so no optimiser state
    assert unused not in set(graph.edge_src) | set(graph.edge_dst)
    assert "0.unused/read" not in graph.op_names
    assert len(ops(graph, "aten._fused_adam_")) == 2
    assert [graph.kind[op] for op in group(graph, "1.weight")] == ["parameter", "read"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


def test_tied_weights_are_one_parameter_with_one_update() -> None:
    graph = step_of(Tied(), torch.zeros(16, dtype=torch.int64)).graph
    (parameter,) = ops(graph, "parameter")
    assert graph.op_names[parameter] == "embedding.weight"
    assert graph.persistent_bytes[parameter] == 3 * 50 * 8 * 4 + 4
    (update,) = ops(graph, "aten._fused_adam_")
    (total,) = ops(graph, "aten.add")  # of the two gradients
    assert update in consumers(graph, total, 0)
    (lookup_gradient,) = ops(graph, "aten.embedding_dense_backward")
    head_gradient = [op for op in ops(graph, "aten.mm") if graph.phase[op] == "backward_weight"]
    assert [graph.phase[op] for op in (total, lookup_gradient)] == ["backward_weight", "backward_weight"]
    assert [graph.layer[op] for op in head_gradient] == ["head"]


def test_kinds_without_a_rule_are_listed() -> None:
    @torch.library.custom_op("mine::halved", mutates_args=())
    def halved(x: Tensor) -> Tensor:
        return x / 2

    halved.register_fake(torch.empty_like)

    class Unusual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.special.erfcx(halved(halved(x))).digamma() * self.weight

    graph = step_of(Unusual(), torch.zeros(4)).graph
    assert graph.uncounted == {"aten.mine::halved": 2}
    unknown, tagged = ops(graph, "aten.mine::halved")[0], ops(graph, "aten.digamma")[0]
    assert (graph.canonical_kind[unknown], graph.canonical_kind[tagged]) == ("other", "elementwise")
    assert graph.effective_bytes_accessed[unknown] == 2 * 16 and graph.flops[tagged] == 4


def test_constants_are_ops_without_a_kernel() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.shift = [torch.ones(4)]

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + self.shift[0]

    graph = step_of(Shifted(), torch.zeros(16, 4)).graph
    (constant,) = ops(graph, "constant")
    assert not graph.kernel[constant]
    assert graph.output_bytes[graph.output_ptr[constant]] == 16


def test_meta_and_real_tensors_give_the_same_graph_twice() -> None:
    real = step_of(Tied(), torch.zeros(16, dtype=torch.int64)).graph
    with torch.device("meta"):
        meta = step_of(Tied(), torch.zeros(16, dtype=torch.int64)).graph
    assert real.sha256 == meta.sha256 == step_of(Tied(), torch.zeros(16, dtype=torch.int64)).graph.sha256


@pytest.mark.slow
def test_the_hash_seed_changes_nothing() -> None:
    code = (
        "import torch; from torch import nn; from support.training_steps import training_step;"
        "m = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2));"
        "print(training_step(m, lambda m, x: m(x).sum(), (torch.zeros(3, 4),), name='m').graph.sha256)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_tracing_leaves_the_module_as_it_was() -> None:
    module = nn.Linear(4, 4)
    before = module.weight.detach().clone()
    step_of(module, torch.zeros(16, 4))
    assert torch.equal(module.weight, before)
    assert not module._forward_hooks
    assert not module._forward_pre_hooks


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        (lambda module, x: module(x), r"loss: torch.Size\(\[16, 4\]\): a training step needs a scalar"),
        (lambda module, x: x.sum(), "loss: depends on no parameter"),
        (lambda module, x: module(x).sum() * module(x).sum().item(), "needs the values of its tensors"),
        (lambda module, x: x[x > 0].sum() + module(x).sum(), "needs the values of its tensors"),
    ],
)
def test_what_is_no_training_step_is_refused(loss: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        training_step(nn.Linear(4, 4), loss, (torch.zeros(16, 4),), name="bad")


def test_a_buffer_may_be_called_as_an_op_is() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight * (x.mean(0) - self.mean)

    names = step_of(Centred(), torch.zeros(4, 3)).graph.op_names
    assert {"mean", "mean/read", "mean/op"} <= set(names)


def test_names_may_contain_a_slash() -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ParameterDict({"de": torch.ones(3), "de/read": torch.ones(3)})

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.tables["de"] * self.tables["de/read"]).sum()

    graph = gp.TorchStep(Tables(), None, (torch.ones(3),), "sgd").computation_graph("net")
    updates = graph.phase.among(["update"])
    assert updates.sum() == 2 and {graph.layer[int(op)] for op in updates.nonzero()[0]} == {"tables"}
