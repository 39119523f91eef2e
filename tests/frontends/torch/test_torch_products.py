"""The flops of products against PyTorch's own counter: every op that has a rule there is called here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.flop_counter import flop_registry

from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.flops import flops
from gnnplace.frontends.torch.inference import inference
from gnnplace.frontends.torch.kinds import canonical_kind
from gnnplace.graph import ComputationGraph


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


QUERY, KEY, VALUE, OUT = meta(2, 6, 5, 8), meta(2, 6, 7, 8), meta(2, 6, 7, 4), meta(2, 6, 5, 4)  # batch, heads, sequence, width
GROUPED = (meta(2, 2, 7, 8), meta(2, 2, 7, 4))  # fewer heads of keys and values
PACKED, LENGTHS = tuple(meta(12, 3, width) for width in (8, 8, 4)), meta(4, dtype=torch.int32)
PADDED = tuple(meta(1, 12, 3, width) for width in (8, 8, 4))
EQUAL = (meta(12, 3, 8),) * 3
IMAGE, KERNEL, CONVOLVED = meta(2, 4, 9, 9), meta(6, 4, 3, 3), meta(2, 6, 7, 7)
PLAIN = ([1, 1], [0, 0], [1, 1])
A, B = meta(5, 7), meta(7, 3)
ATTENDED = (QUERY, KEY, VALUE)

# the arguments of each op of PyTorch's counter, and what it returns
CALLS: dict[str, tuple[tuple[Any, ...], Tensor | tuple[Tensor, ...]]] = {
    "aten.mm": ((A, B), meta(5, 3)),
    "aten.addmm": ((meta(3), A, B), meta(5, 3)),
    "aten.bmm": ((meta(4, 5, 7), meta(4, 7, 3)), meta(4, 5, 3)),
    "aten.baddbmm": ((meta(4, 5, 3), meta(4, 5, 7), meta(4, 7, 3)), meta(4, 5, 3)),
    "aten._scaled_mm": ((A, B, meta(1), meta(1)), meta(5, 3)),
    "aten.convolution": ((IMAGE, KERNEL, None, *PLAIN, False, [0, 0], 1), CONVOLVED),
    "aten._convolution": ((IMAGE, KERNEL, None, *PLAIN, False, [0, 0], 1, False, False, False, False), CONVOLVED),
    "aten.cudnn_convolution": ((IMAGE, KERNEL, [0, 0], [1, 1], [1, 1], 1, False, False, False), CONVOLVED),
    "aten.convolution_overrideable": ((IMAGE, KERNEL, None, *PLAIN, False, [0, 0], 1), CONVOLVED),
    "aten._slow_conv2d_forward": ((IMAGE, KERNEL, [3, 3], None, [1, 1], [0, 0]), CONVOLVED),
    "aten.convolution_backward": (
        (CONVOLVED, IMAGE, KERNEL, [6], *PLAIN, False, [0, 0], 1, [True, True, False]), (IMAGE, KERNEL),
    ),
    "aten._scaled_dot_product_efficient_attention": ((*ATTENDED, None, False), OUT),
    "aten._scaled_dot_product_flash_attention": ((QUERY, *GROUPED), OUT),
    "aten._scaled_dot_product_cudnn_attention": ((*ATTENDED, None, False), OUT),
    "aten._scaled_dot_product_efficient_attention_backward": ((OUT, *ATTENDED), ATTENDED),
    "aten._scaled_dot_product_flash_attention_backward": ((OUT, QUERY, *GROUPED), ATTENDED),
    "aten._scaled_dot_product_cudnn_attention_backward": ((OUT, *ATTENDED), ATTENDED),
    "aten._flash_attention_forward": ((*PACKED, LENGTHS, LENGTHS, 5, 6), meta(12, 3, 4)),
    "aten._flash_attention_backward": (
        (meta(12, 3, 8), *EQUAL, meta(12, 3, 8), meta(3, 12), LENGTHS, LENGTHS, 5, 6), EQUAL,
    ),
    "aten._efficient_attention_forward": ((*PADDED, None, LENGTHS, LENGTHS, 5, 6), meta(1, 12, 3, 4)),
    "aten._efficient_attention_backward": (
        (meta(1, 12, 3, 8), *(each[None] for each in EQUAL), None, meta(1, 12, 3, 8), LENGTHS, LENGTHS, 5, 6), EQUAL,
    ),
}  # fmt: skip
# its rule takes positions that the op has for other arguments
OTHERWISE = {
    "aten.cudnn_convolution": (IMAGE, KERNEL, None, *PLAIN, False),
    "aten._slow_conv2d_forward": (IMAGE, KERNEL, None, *PLAIN, False),
}
REFUSED = ("flex_attention", "flex_attention_backward")  # they take functions


def call(name: str, arguments: tuple[Any, ...], outputs: Tensor | tuple[Tensor | None, ...]) -> Call:
    packet = getattr(torch.ops.aten, name.removeprefix("aten."))
    target = getattr(packet, packet.overloads()[0])
    names = [argument.name for argument in target._schema.arguments]
    return Call(target, dict(zip(names, arguments, strict=False)), outputs if isinstance(outputs, tuple) else (outputs,))


@pytest.mark.parametrize("op", flop_registry, ids=str)
def test_an_op_has_the_flops_of_pytorchs_counter(op: Any) -> None:
    if str(op) in REFUSED:
        return
    arguments, outputs = CALLS[str(op)]
    expected = flop_registry[op](*OTHERWISE.get(str(op), arguments), out_val=outputs)
    assert flops(call(str(op), arguments, outputs)) == expected > 0


@pytest.mark.parametrize(
    ("name", "arguments", "output", "expected"),
    [
        ("_grouped_mm", (meta(8, 5), meta(3, 5, 7)), meta(8, 7), 2 * 8 * 5 * 7),
        ("_grouped_mm", (meta(3, 4, 5), meta(5, 8)), meta(4, 8), 2 * 4 * 5 * 8),
        ("_grouped_mm", (meta(4, 8), meta(8, 6)), meta(3, 4, 6), 2 * 4 * 8 * 6),
        ("_grouped_mm", (meta(3, 4, 5), meta(3, 5, 6)), meta(3, 4, 6), 2 * 3 * 4 * 5 * 6),
        ("_int_mm", (A, B), meta(5, 3), 2 * 5 * 7 * 3),
        ("_weight_int8pack_mm", (A, meta(3, 7), meta(3)), meta(5, 3), 2 * 5 * 7 * 3),
        ("addr", (meta(5, 3), meta(5), meta(3)), meta(5, 3), 2 * 5 * 3),
        ("addbmm", (meta(5, 3), meta(4, 5, 7), meta(4, 7, 3)), meta(5, 3), 2 * 4 * 5 * 7 * 3),
        ("mv", (A, meta(7)), meta(5), 2 * 5 * 7),
        ("_foreach_mm", ([A, meta(2, 2)], [B, meta(2, 6)]), (meta(5, 3), meta(2, 6)), 2 * 5 * 7 * 3 + 2 * 2 * 2 * 6),
        ("_trilinear", (meta(4, 5), meta(3, 5, 6), meta(4, 6), [1, 3], [0], [1, 2], [2, 3]), meta(4, 3), 3 * 4 * 3 * 5 * 6),
        ("conv_tbc", (meta(9, 2, 4), meta(3, 4, 6), meta(6)), meta(7, 2, 6), 2 * 7 * 2 * 6 * 3 * 4),
        ("_cdist_forward", (meta(2, 5, 3), meta(2, 4, 3), 2.0, None), meta(2, 5, 4), 3 * 2 * 5 * 4 * 3),
        ("_euclidean_dist", (meta(5, 3), meta(4, 3)), meta(5, 4), 2 * 5 * 4 * (3 + 2)),
        ("_cdist_backward", (meta(5, 4), meta(5, 3), meta(4, 3), 2.0, meta(5, 4)), meta(5, 3), 4 * 5 * 4 * 3),
        ("_flash_attention_forward", (*PADDED, None, None, 12, 12), meta(1, 12, 3, 4), 2 * 3 * 12 * 12 * (8 + 4)),
        ("_native_multi_head_attention", (meta(2, 5, 8), meta(2, 5, 8), meta(2, 5, 8), 8, 2), meta(2, 5, 8), 10 * (8 * 64 + 4 * 5 * 8)),
        (
            "mkldnn_rnn_layer",
            (meta(6, 2, 3), meta(16, 3), meta(16, 4), meta(16), meta(16), meta(1, 2, 4), meta(1, 2, 4), False, [], 2, 4),
            meta(6, 2, 4), 2 * 12 * (16 * 3 + 16 * 4) + 17 * 12 * 4,
        ),
    ],
)  # fmt: skip
def test_a_product_that_pytorchs_counter_does_not_know_has_two_a_multiplication(
    name: str, arguments: tuple[Any, ...], output: Tensor, expected: int
) -> None:
    assert flops(call(name, arguments, output)) == expected


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, 16, 24))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        return nn.functional.grouped_mm(x, self.weight.to(x.dtype), offs=ends)


ENDS = torch.tensor([3, 8], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_experts_by_grouped_products_are_captured_forward_and_backward(dtype: torch.dtype) -> None:
    x = torch.empty(8, 16, dtype=dtype)
    once = 2 * 8 * 16 * 24
    trained = training_step(Experts(), lambda net, x, ends: net(x, ends).float().square().sum(), (x, ENDS), name="experts").graph
    assert of_grouped(trained) == [once, once]  # the input has no gradient
    assert of_grouped(inference(Experts(), (x, ENDS), name="experts").graph) == [once]


def of_grouped(graph: ComputationGraph) -> list[int]:
    assert not graph.uncounted
    return graph.flops[graph.kind.among(["aten._grouped_mm"])].tolist()


@pytest.mark.parametrize(
    ("module", "x", "what"),
    [
        (Experts, torch.empty(8, 16, dtype=torch.float64), "Expected inputs of BF16 type"),
        (lambda: odd(Experts()), torch.empty(8, 16), "multiple of 16 bytes"),
    ],
)
def test_grouped_products_that_pytorch_refuses_are_refused(module: Callable[[], nn.Module], x: Tensor, what: str) -> None:
    with pytest.raises(RuntimeError):
        module()(x, ENDS)
    with pytest.raises(ValueError, match=rf"^module: RuntimeError: .*{what}.*grouped_mm"):
        training_step(module(), lambda net, x, ends: net(x, ends).sum(), (x, ENDS), name="experts")


def odd(experts: Experts) -> Experts:
    experts.weight = nn.Parameter(torch.empty(2, 16, 25))
    return experts


def test_a_grouped_product_is_a_product_of_batches() -> None:
    assert canonical_kind(call("_grouped_mm", (meta(8, 5), meta(3, 5, 7)), meta(8, 7))) == "batch_matmul"


class Flexible(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return flex_attention(x, x, x)


def test_attention_that_takes_functions_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^module: flex_attention: .* runs functions as one op, .*; take scaled_dot"):
        inference(Flexible(), (torch.empty(1, 2, 16, 8),), name="flexible")
