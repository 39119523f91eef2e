"""The outermost modules that a placement leaves whole: the words of a device_map.

accelerate moves the arguments of the modules that a map names, and nothing else. So a map names a block that is on one device, whose
residual sums then have both their terms there, and looks into a module only where that is divided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from gnnplace.exports.homes import Device, Homes


class Divided(NamedTuple):
    """The `map` of outermost whole modules; `bare` tensors of the model itself, where it is divided; `torn`, modules that hold tensors and
    are divided; and `tied` tensors, by two names, whose modules are on two devices.
    """

    map: dict[str, Device]
    bare: dict[str, Device]
    torn: tuple[str, ...]
    tied: tuple[tuple[str, str], ...]


def outermost(homes: Homes, also: Mapping[str, str], names: Mapping[str, str]) -> Divided:
    """The device of each outermost whole module, in the order in which modules begin; that of the model itself is "".

    `also` are further names of tensors, each with the first; `names` are paths of modules where they differ from those in `homes`.

    >>> homes = Homes({"embed.weight": 0, "cls": 0, "0.up.weight": 1, "0.down.weight": 1}, {"0.up": 1, "0.down": 1}, {"0.act": 1})
    >>> outermost(homes, {}, {})
    Divided(map={'0': 1, 'embed': 0}, bare={'cls': 0}, torn=(), tied=())
    >>> outermost(homes._replace(modules={"head": 0}), {"head.weight": "0.up.weight"}, {}).tied
    (('head.weight', '0.up.weight'),)
    """
    tensors = homes.tensors | {name: homes.tensors[first] for name, first in also.items()}
    held = [(_path(name)[:-1], device) for name, device in tensors.items()]
    placed = [(_path(name), device) for name, device in homes.modules.items()] + held
    firm, any_code, children = defaultdict(set), defaultdict(set), defaultdict(dict)  # type: ignore[var-annotated]
    for path, device in [*placed, *((_path(name), device) for name, device in homes.layers.items())]:
        for length in range(len(path) + 1):
            any_code[path[:length]].add(device)
            if length < len(path):
                children[path[:length]][path[: length + 1]] = None
    for path, device in placed:
        for length in range(len(path) + 1):
            firm[path[:length]].add(device)
    holding = {path for path, _ in held}
    found = Divided({}, {name: device for name, device in tensors.items() if "." not in name}, (), ())
    torn: list[str] = []

    def visit(path: tuple[str, ...]) -> None:
        devices = firm[path] or any_code[path]
        name = ".".join(path)
        if len(devices) == 1:
            found.map[names.get(name, name)] = next(iter(devices))
            return
        if path and path in holding:
            torn.append(name)
        for child in children[path]:
            visit(child)

    visit(())
    tied = tuple(pair for pair in also.items() if ".".join(_path(pair[0])[:-1]) in torn)
    return found._replace(bare={} if "" in found.map else found.bare, torn=tuple(torn), tied=tied)


def as_captured(name: str) -> str:
    """A path as layers have it, without what `torch.compile` put between."""
    return ".".join(_path(name))


def _path(name: str) -> tuple[str, ...]:
    """The parts of a path, as it was before `torch.compile`."""
    return tuple(part for part in name.split(".") if part != "_orig_mod")
