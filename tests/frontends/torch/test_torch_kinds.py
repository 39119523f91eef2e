"""Every ATen op has a canonical kind, but for those that no captured step can call: a walk over PyTorch's own registry."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch

from gnnplace.frontends.torch.kinds import _CANONICAL, kind_of

# why an op has no rule, by a pattern of its whole name
UNRULED = {
    "tensors of other layouts, which a step refuses": (
        r".*sparse.*|.*_csr.*|_coalesced?_?|hspmm|_sp(diags|solve)|_to_(dense|mkldnn)|to_mkldnn|_?mkldnn_(?!rnn).*|_nested_.*|"
        r"_new_zeros_with_same_feature_meta"
    ),
    "other backends' own calls; fake tensors are on the CPU": r".*mps.*|_triton_.*|_?cudnn_.*|_cslt_.*",
    "assertions and tokens": r"_functional_.*|_make_dep_token",
    "PyTorch's own tests": r"_test_.*|_foobar",
    "gradients of nested tensors and other backends in one op; elsewhere autograd takes them apart": r"(linear|matmul)_backward",
    "layers of quantised weights, which only their object knows": r"quantized_(lstm|gru)",
}


def ops() -> Iterator[torch._ops.OpOverload]:
    """The ATen ops that give tensors and are not taken apart into others when a step is traced."""
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")}):
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            writes_out = any(each.kwarg_only and each.alias_info and each.alias_info.is_write for each in op._schema.arguments)
            if not writes_out and any("Tensor" in str(result.type) for result in op._schema.returns) and not composite(op):
                yield op


def composite(op: torch._ops.OpOverload) -> bool:
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    except RuntimeError:  # of TorchScript alone
        return True


def test_every_op_of_pytorch_has_a_kind() -> None:
    walked = list(ops())
    assert len(walked) > 1000
    patterns = re.compile("|".join(UNRULED.values()))
    unruled = {op._schema.name.removeprefix("aten::") for op in walked if kind_of(op) == "other"}
    assert {name for name in unruled if not patterns.fullmatch(name)} == set()


@pytest.mark.parametrize("reason", UNRULED)
def test_every_exception_is_one(reason: str) -> None:
    assert any(re.fullmatch(UNRULED[reason], op._schema.name.removeprefix("aten::")) for op in ops() if kind_of(op) == "other")


def test_the_table_names_ops_of_pytorch_alone() -> None:
    names = {schema.name.removeprefix("aten::").removesuffix("_") for schema in torch._C._jit_get_all_schemas()}
    assert [name for name in _CANONICAL if name not in names and "::" not in name] == []


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (torch.ops.aten.digamma.default, "elementwise"),
        (torch.ops.aten.digamma_.default, "elementwise"),
        (torch.ops.aten._foreach_sinh.default, "elementwise"),
        (torch.ops.aten._foreach_norm.Scalar, "reduce"),
        (torch.ops.aten.view_copy.default, "reshape"),
        (torch.ops.aten._conj.default, "reshape"),
        (torch.ops.aten.addmm_.default, "matmul"),
    ],
)
def test_an_op_that_the_table_does_not_name_has_the_kind_of_its_tag(op: torch._ops.OpOverload, kind: str) -> None:
    assert kind_of(op) == kind
