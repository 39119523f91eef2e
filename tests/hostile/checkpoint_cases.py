"""Hostile checkpoints of the unit placer, from which `gnnplace place` places nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from gnnplace.policies.protocol import PolicyShape
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig
from tests.hostile.command_case import OUTPUT, HostileFile
from tests.hostile.documents import EVIL, changed, wrong_values
from tests.hostile.file_cases import OTHERS

SMALL = UnitPlacerConfig(units="ops", width=8, rounds=1, hidden=8)
PREFIX = "state_dict/policy."
DOCUMENT: dict[str, Any] = {
    "format": "gnnplace.checkpoint",
    "version": 3,
    "tree": {
        "gnnplace": {
            "description": {
                "config": {"policy": vars(SMALL), "training": {"groupings": 1}},
                "shape": {"devices": 0, "kinds": [], "groups": 0},
                "problems": [{"graph": ["fork", "0" * 64], "cluster": ["pair", "0" * 64]}],
                "range": {"ops": [3, 3], "devices": [2, 2]},
            },
            "updates_done": 1,
            "best": None,
        }
    },
}
LARGE = 3e38  # finite, but not what a layer makes of it
SAID = ("tree", "gnnplace", "description")
KNOBS = {
    "a width of 60,000": ("width", 60_000, "width"),
    "ten million rounds": ("rounds", 10**7, "rounds"),
    "another width": ("width", 16, "have shape"),
    "a width that fits": ("width", 16_000, "have shape"),
    "a thousand rounds": ("rounds", 1000, "have shape|None"),
    "no kind": ("kind", None, "policy.kind"),
    "another kind": ("kind", EVIL, "policy.kind"),
    "an unknown knob": ("evil", 1, "'policy.evil' is no knob"),
    "odd units": ("units", "atoms", "units"),
    "a width of text": ("width", "8; import os", "width"),
    "a width of NaN": ("width", float("nan"), "width|finite"),
    "no width": ("width", None, "width"),
    "a text that nests": ("units", "[" * 50_000, "policy.units: "),
    "a schedule that needs priorities": ("schedule", "given", "priorities"),
}


@cache
def weights() -> dict[str, Tensor]:
    """The policy's initial weights as a checkpoint names them."""
    return {PREFIX + name: value for name, value in SMALL.build(PolicyShape(), 1, 0).state_dict().items()}


def written(document: Any, tensors: dict[str, Tensor] | None = None) -> bytes:
    """The bytes of a checkpoint."""
    text = document if isinstance(document, str) else json.dumps(document)
    return save({name: value.contiguous() for name, value in (tensors or weights()).items()}, {"gnnplace": text})


def _case(name: str, content: bytes, words: str) -> HostileFile:
    arguments = ("place", "graph.json", "--cluster", "cluster.json", "--checkpoint", "c.safetensors", "-q", "-o", OUTPUT)
    return HostileFile("checkpoint", name, arguments, OTHERS | {"c.safetensors": content}, f"c.safetensors: .*({words})")


def _metadata() -> Iterator[HostileFile]:
    own = DOCUMENT["tree"]["gnnplace"]
    for name, document, words in wrong_values(DOCUMENT):
        if not any(f"policy.{knob} " in f"{name} " for knob in vars(SMALL)):
            yield _case(name, written(document), words)
    for where in (
        ("tree",),
        ("tree", "gnnplace"),
        SAID,
        (*SAID, "config"),
        (*SAID, "shape"),
        (*SAID, "problems"),
        (*SAID, "config", "training"),
    ):
        for wrong in (None, [], {}, "x", [None]):
            if not (where[-1] == "problems" and wrong == []):
                yield _case(f"{'.'.join(where)} is {wrong!r}", written(changed(DOCUMENT, where, wrong)), ".")
    for name, (knob, value, words) in KNOBS.items():
        yield _case(name, written(changed(DOCUMENT, (*SAID, "config", "policy", knob), value)), words)
    texts = {
        "brackets": "[" * 100_000,
        "maps": '{"a":' * 100_000,
        "no JSON": "{",
        "nothing": "",
        "null": "null",
        "a key twice": '{"a":1,"a":2}',
        "deep": "[" * 90 + "]" * 90,
    }
    for name, text in texts.items():
        yield _case(f"metadata: {name}", written(text), "not a checkpoint")
    yield _case("an old version", written(DOCUMENT | {"version": 1}), "version 1 ")
    yield _case("an old version without what it needs", written({"format": "gnnplace.checkpoint", "version": 2}), "description")
    yield _case("2^31 updates", written(changed(DOCUMENT, ("tree", "gnnplace"), own | {"updates_done": 2**31})), "updates_done")
    yield _case("a thousand devices too many", written(changed(DOCUMENT, (*SAID, "shape", "devices"), 10**9)), "devices")


def _tensors() -> Iterator[HostileFile]:
    known = weights()
    first = next(name for name in known if name.endswith("scorer.out.weight"))
    for value in (torch.nan, torch.inf, -torch.inf, LARGE):
        damaged = {
            name: torch.full_like(part, value) if part.is_floating_point() and "range" not in name else part for name, part in known.items()
        }
        case = _case(f"weights of {value}", written(DOCUMENT, damaged), "not finite")
        yield replace(case, words="its logits are not finite") if value == LARGE else case
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
        yield _case(f"a weight of {dtype}", written(DOCUMENT, known | {first: known[first].to(dtype)}), "the policy's are torch.float32")
    for name, tensor in (
        ("of another shape", torch.zeros(3, 3)),
        ("turned", known[first].T),
        ("of no size", torch.zeros(0)),
        ("a number", torch.tensor(1.0)),
    ):
        yield _case(f"a weight {name}", written(DOCUMENT, known | {first: tensor}), "have shape")
    yield _case("a weight too many", written(DOCUMENT, known | {f"{PREFIX}{EVIL}": torch.zeros(1)}), "have shape")
    yield _case(
        "a weight too few", written(DOCUMENT, {name: part for name, part in known.items() if name != first}), "have None|shape None"
    )
    yield _case("no weights", written(DOCUMENT, {"other": torch.zeros(1)}), "shape None")
    for name, part in known.items():
        if name.endswith("lowest"):
            yield _case(f"{name} of -inf", written(DOCUMENT, known | {name: torch.full_like(part, -torch.inf)}), "not finite")


def _bytes() -> Iterator[HostileFile]:
    good = written(DOCUMENT)
    header = struct.unpack("<Q", good[:8])[0]
    for share in range(12):
        yield _case(f"cut at {share}/12", good[: len(good) * share // 12], "checkpoint")
    for length in (0, 1, header - 1, header + 1, 2**31, 2**63, 2**64 - 1, 100_000_001):
        yield _case(f"a header of {length} bytes", struct.pack("<Q", length) + good[8:], "not a checkpoint")
    yield _case("more behind it", good + b"x", "not a checkpoint")
    yield _case("zeros", bytes(10_000), "checkpoint")
    yield _case("a pickle", b"cos\nsystem\n(S'touch executed'\ntR.", "not a checkpoint")
    yield _case("a zip, as torch.save writes", b"PK\x03\x04" + bytes(100), "not a checkpoint")
    odd = {
        "a tensor over the end": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        "a shape that overflows": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]},
        "an odd type": {"dtype": "EVIL", "shape": [1], "data_offsets": [0, 4]},
        "offsets below 0": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        "a type of four bits": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]},
        "no offsets": {"dtype": "F32", "shape": [1]},
    }
    for name, tensor in odd.items():
        text = json.dumps({"__metadata__": {"gnnplace": json.dumps(DOCUMENT)}, "a": tensor}).encode()
        yield _case(name, struct.pack("<Q", len(text)) + text + bytes(4), ".")
    text = b"[" * 100_000
    yield _case("a header of brackets", struct.pack("<Q", len(text)) + text, "not a checkpoint")


def cases() -> Iterator[HostileFile]:
    """All of them."""
    good = _case("the document as it is", written(DOCUMENT), "")
    yield replace(good, statuses=frozenset({0}))
    yield from _metadata()
    yield from _tensors()
    yield from _bytes()
