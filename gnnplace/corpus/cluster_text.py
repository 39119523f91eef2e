"""Machines described in words: `2x rtx-4090 + l4, pcie4` names devices and links of the table of hardware.

    TEXT   = [COUNT "nodes of"] DEVICE {"+" DEVICE} {"," LINK} ["," "tf32"]
    DEVICE = [COUNT "x"] NAME

Names are those of the table; case, spaces and hyphens don't matter. A CPU among the devices is the host; without one
the host is `HOST`. A text names at least one link. There is one link of each role at most: between host and devices,
between devices, between nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gnnplace.cluster import Cluster
from gnnplace.corpus import hardware
from gnnplace.corpus.assembly import MachineParts, assembled
from gnnplace.corpus.hardware import Connection, Part
from gnnplace.formats import strict_json

HOST = "epyc-milan"
TF32 = "tf32"
MOST_DEVICES = 128
MOST_CHARACTERS = 1000
EXAMPLE = "2x rtx-4090 + l4, pcie4"

_NODES = re.compile(r"\s*(\d{1,9})\s*nodes\s+of\s+(.*)", re.ASCII | re.DOTALL | re.IGNORECASE)
_COUNTED = re.compile(r"(?:(\d{1,9})\s*[x×]\s*)?(.+)", re.ASCII | re.DOTALL | re.IGNORECASE)


class Term(NamedTuple):
    """A number of equal devices."""

    number: int
    part: Part

    def __str__(self) -> str:
        return f"{self.number}x {self.part.name}" if self.number > 1 else self.part.name


class Description(NamedTuple):
    """The content of a text. `str` gives it in canonical spelling with its host, which is the name of the cluster."""

    nodes: int
    terms: tuple[Term, ...]
    host: Part
    links: tuple[Connection, ...]
    tf32: bool

    def __str__(self) -> str:
        devices = " + ".join([*map(str, self.terms), self.host.name])
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else ""
        return ", ".join([nodes + devices, *hardware.names(self.links), *([TF32] if self.tf32 else [])])


def is_description(text: str) -> bool:
    """Whether a text describes a machine; otherwise it is the name of a preset, perhaps misspelt."""
    return any(mark in text for mark in ",+ ")


def described_cluster(text: str, name: str | None = None) -> Cluster:
    """The cluster that a text describes, called `name` or by the text in canonical spelling.

    Raises ValueError (one line) for an invalid text.

    >>> cluster = described_cluster("2x RTX 4090 + l4, pcie4")
    >>> cluster.name, cluster.device_names
    ('2x rtx-4090 + l4 + epyc-milan, pcie4', ('cpu:0', 'gpu:0', 'gpu:1', 'gpu:2'))
    """
    parsed = description(text)
    parts = [term.part for term in parsed.terms for _ in range(term.number)]
    wires: dict[str, Connection] = {link.role: link for link in parsed.links}
    machine = MachineParts(
        parsed.nodes, parsed.host, tuple(parts), wires.get("host"), wires.get("peer"), wires.get("network"), parsed.tf32
    )
    try:
        return assembled(name or str(parsed), machine)
    except ValueError as error:
        raise _invalid(text, str(error)) from None


def description(text: str) -> Description:
    """The content of a text. Raises ValueError (one line) with the error, the rule and the nearest name.

    >>> str(description("rtx-4090, pcie 4, tf32"))
    'rtx-4090 + epyc-milan, pcie4, tf32'
    """
    if len(text) > MOST_CHARACTERS:
        raise _invalid(text, f"longer than the {MOST_CHARACTERS} characters that such a text may have")
    try:
        return _description(text)
    except ValueError as error:
        raise _invalid(text, str(error)) from None


def _description(text: str) -> Description:
    devices, *rest = text.split(",")
    several = _NODES.fullmatch(devices)
    nodes, devices = (_count(several[1]), several[2]) if several else (1, devices)
    terms = [_term(device.strip()) for device in devices.split("+")]
    words = [word.strip() for word in rest]
    links = [_link(word) for word in words if word.casefold() != TF32]
    hosts = [term for term in terms if term.part.kind == "cpu"]
    accelerators = [term for term in terms if term.part.kind != "cpu"]
    _check_devices(nodes, hosts, accelerators)
    _check_links(nodes, links)
    if len(words) - len(links) > 1:
        raise ValueError(f"{TF32!r} stands there twice")
    host = hosts[0].part if hosts else hardware.part(HOST)
    return Description(nodes, tuple(accelerators), host, tuple(links), len(words) > len(links))


def _term(text: str) -> Term:
    if not (match := _COUNTED.fullmatch(text)):
        raise ValueError("a device is missing")
    return Term(_count(match[1] or "1"), hardware.part(match[2].strip()))


def _link(word: str) -> Connection:
    if not word:
        raise ValueError("a link is missing after a comma")
    counted = _COUNTED.fullmatch(word)
    if counted and hardware.is_part(counted[2]):
        raise ValueError(f"{strict_json.shown(word)} is a device where a link is due: a '+' joins devices")
    return hardware.connection(word)


def _count(text: str) -> int:
    if not 1 <= int(text) <= MOST_DEVICES:
        raise ValueError(f"{text} is not between 1 and {MOST_DEVICES}; a JSON file may hold more")
    return int(text)


def _check_devices(nodes: int, hosts: Sequence[Term], accelerators: Sequence[Term]) -> None:
    if not accelerators:
        raise ValueError("names no accelerator, only a host")
    if len(hosts) > 1 or any(host.number > 1 for host in hosts):
        raise ValueError(f"{' + '.join(map(str, hosts))}: a node has one host")
    num_devices = nodes * (1 + sum(term.number for term in accelerators))
    if num_devices > MOST_DEVICES:
        raise ValueError(f"{num_devices} devices, hosts included; at most {MOST_DEVICES}, a JSON file may hold more")


def _check_links(nodes: int, links: Sequence[Connection]) -> None:
    if not links:
        raise ValueError("names no link; add one, such as ', pcie4'")
    for role, joins in (("host", "hosts and devices"), ("peer", "devices"), ("network", "nodes")):
        same_role = [link.name for link in links if link.role == role]
        if len(same_role) > 1:
            raise ValueError(f"{' and '.join(same_role)} both join {joins}; name one")
    networks = [link.name for link in links if link.role == "network"]
    if nodes == 1 and networks:
        raise ValueError(f"{networks[0]!r} joins nodes, and there is one; begin with '2 nodes of'")
    if nodes > 1 and not networks:
        raise ValueError(f"names no link between the {nodes} nodes; add one, such as ', infiniband-ndr'")


def _invalid(text: str, reason: str) -> ValueError:
    return ValueError(f"{strict_json.shown(text)}: {reason}")
