"""Modules of published code beside ours: the same parameters in both."""

from __future__ import annotations

import re

from torch import Tensor, nn

Parts = list[tuple[str, str]]


def share(module: nn.Module, published: nn.Module, parts: Parts) -> None:
    """Gives the published module the parameters of ours, drawn at random; every one of its parameters must be among them.

    `parts` are patterns of our names and what stands for them there, one after another; `qkv` is three parameters there.
    """
    given: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.5)
        for pattern, replacement in parts:
            name = re.sub(pattern, replacement, name)
        if "qkv" in name:
            given |= {name.replace("qkv", f"{letter}_proj"): part for letter, part in zip("qkv", parameter.chunk(3), strict=True)}
        else:
            given[name] = parameter
    expected = dict(published.named_parameters())
    assert given.keys() == expected.keys()
    for name, parameter in expected.items():
        parameter.data.copy_(given[name].reshape(parameter.shape))
