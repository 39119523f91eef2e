"""How many copies of a graph make up a step, in one record: for the API, commands, configurations and documents."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, get_args

from gnnplace.choices import CopiesName
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.families import FamilyShares
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.replicas import replicas


@dataclass(frozen=True)
class Parallelism:
    """The step of several micro-batches (docs/execution-model.md#micro-batches). By default a step is one of them.

    Args:
        micro_batches: how many make up a step, at least 1; of an inference graph, requests in flight. The graph that is
            given is that of one
        copies: "together": all copies of an op stand on one device; "free": each may stand anywhere, and a weight that
            is sent there is kept for the step; "fetched": free, and a weight is sent anew for each micro-batch and
            pass; "anchored": free, but what runs once on a replica (weights, sums, updates) stands on one device;
            "whole": all ops of a replica do
        shared: names of inputs that all micro-batches read; scalar inputs are always shared
        replicas: how many copies of the variables and their update there are, at most one for each micro-batch
        shares: the micro-batches of each replica; as equal as possible unless given
        one_home: layers whose variables are not copied in spite of replicas (tables, experts), with wildcards
        family_shares: layers, with wildcards, and the micro-batches of each replica in these; 0 for a replica that has
            no copy of their variables and works on no micro-batch there
        ring_size: how many replicas, one after another, make a ring: those of a node. Gradients are summed in each
            ring and across rings; 0: all in one ring

    Raises ValueError for a value that is none of these, and for shares that don't sum to the micro-batches.

        >>> from gnnplace.corpus import manifest
        >>> Parallelism(4).of(manifest.graph("dlrm")).micro_batches
        4
        >>> Parallelism(8, replicas=3).shares
        (3, 3, 2)
        >>> Parallelism(8, shares=(1, 1, 3, 3), family_shares=(("h.1?", (0, 0, 4, 4)),)).replicas
        4
    """

    micro_batches: int = 1
    copies: CopiesName = "together"
    shared: tuple[str, ...] = ()
    replicas: int = 1
    shares: tuple[int, ...] = ()
    one_home: tuple[str, ...] = ()
    family_shares: FamilyShares = ()
    ring_size: int = 0

    def __post_init__(self) -> None:
        for name, what in (("micro_batches", "micro-batches"), ("replicas", "replicas")):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name}: {number!r} is no number of {what}; at least 1")
        if self.copies not in (names := get_args(CopiesName)):
            raise ValueError(f"copies: {self.copies!r} is none of {', '.join(names)}")
        for name, what in (("shared", "inputs"), ("one_home", "layers")):
            names_given = getattr(self, name)
            if not isinstance(names_given, tuple) or not all(isinstance(each, str) for each in names_given):
                raise ValueError(f"{name}: {names_given!r} is no tuple of names of {what}")
            object.__setattr__(self, name, tuple(sorted(set(names_given))))
        self._settle_shares()
        self._settle_families()
        self._settle_rings()

    def _settle_shares(self) -> None:
        """Sets the shares of replicas, and their number where shares alone are given."""
        total, given = self.micro_batches, self.shares
        if any(isinstance(share, bool) or not isinstance(share, int) or share < 1 for share in given):
            raise ValueError(f"shares: {given!r} are no numbers of micro-batches; each replica has at least 1")
        if given and self.replicas not in (1, len(given)):
            raise ValueError(f"shares: {given!r} are those of {len(given)} replicas, not of {self.replicas}")
        if given and sum(given) != total:
            raise ValueError(f"shares: {given!r} sum to {sum(given)}, not to the {total} micro-batches of the step")
        number = len(given) or self.replicas
        if number > total:
            raise ValueError(f"replicas: {number} are more than the {total} micro-batches of the step; each has one")
        if number == 1 and self.one_home:
            raise ValueError("one_home: a step of one replica has every variable at one home; say replicas, too")
        if number > 1 and self.copies == "fetched":
            raise ValueError("copies: 'fetched' is for weights with one home, in a step of one replica")
        even = tuple(total // number + (replica < total % number) for replica in range(number))
        object.__setattr__(self, "replicas", number)
        object.__setattr__(self, "shares", () if number == 1 else given or even)

    def _settle_families(self) -> None:
        """Checks the shares of families, and sorts them by name."""
        for name, given in self.family_shares:
            if self.replicas == 1:
                raise ValueError("family_shares: a step of one replica has every family; say replicas, too")
            if any(isinstance(share, bool) or not isinstance(share, int) or share < 0 for share in given):
                raise ValueError(f"family_shares: {given!r} of {name!r} are no numbers of micro-batches; at least 0")
            if (number := len(given)) != self.replicas:
                raise ValueError(
                    f"family_shares: {given!r} of {name!r} are those of {number} replicas, not of {self.replicas}"
                )
            if (total := sum(given)) != (wanted := self.micro_batches):
                raise ValueError(f"family_shares: {given!r} of {name!r} sum to {total}, not to {wanted} micro-batches")
        families = tuple(sorted(set(self.family_shares)))
        if twice := [name for (name, _), (other, _) in pairwise(families) if name == other]:
            raise ValueError(f"family_shares: {twice[0]!r} has two; name it once")
        object.__setattr__(self, "family_shares", families)

    def _settle_rings(self) -> None:
        """Checks the size of rings, which is 0 where all replicas are in one."""
        size, number = self.ring_size, self.replicas
        if isinstance(size, bool) or not isinstance(size, int) or size < 0 or size == 1:
            raise ValueError(f"ring_size: {size!r} is no number of replicas in a ring; at least 2, or 0 for one ring")
        if size and number == 1:
            raise ValueError("ring_size: a step of one replica has no ring; say replicas, too")
        if size and number % size:
            raise ValueError(f"ring_size: {size} does not divide the {number} replicas")
        object.__setattr__(self, "ring_size", 0 if size == number else size)

    @classmethod
    def in_graph(cls, graph: ComputationGraph) -> Parallelism:
        """How a graph was made of that of one micro-batch."""
        copies = graph.copies
        if copies is None:
            return cls()
        shares = copies.shares if copies.replicas > 1 else ()
        return cls(
            copies.micro_batches, copies.placed, copies.shared, copies.replicas, shares, copies.one_home,
            copies.family_shares, copies.ring_size,
        )  # fmt: skip

    def of(self, graph: ComputationGraph) -> ComputationGraph:
        """The step, of the graph of one micro-batch. One is the graph itself.

        A step of as many micro-batches, which its code may say, takes this form; what it shares stays shared. Raises
        ValueError (one line) as `micro_batches` does, and for a step of another number of micro-batches.
        """
        if self.micro_batches > 1 and (copies := graph.copies) is not None:
            if copies.micro_batches != self.micro_batches:
                raise ValueError(
                    f"micro_batches: {self.micro_batches} of {graph.name!r}, which is a step of {graph.micro_batches} "
                    "already; give the graph of one"
                )
            form = replace(self, shared=(*self.shared, *copies.shared))
            return graph if form == self.in_graph(graph) else form.of(copies.original)
        if self.replicas == 1:
            return micro_batches(graph, self.micro_batches, self.copies, self.shared)
        return replicas(graph, self.shares, self.copies, self.shared, self.one_home, self.family_shares, self.ring_size)

    def knobs(self) -> dict[str, Any]:
        """The values that are not the default, as documents hold them; none for a step of one micro-batch."""
        if self.micro_batches == 1:
            return {}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        given = {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        if self.family_shares:
            lists["family_shares"] = {name: list(shares) for name, shares in self.family_shares}
        return lists

    def refusal(self, what: str) -> str | None:
        """Why `what`, which runs captured steps, can't run this one, and what can be done; None for one micro-batch."""
        if (number := self.micro_batches) == 1:
            return None
        return (
            f"{number}: {what} runs a step of one micro-batch; measure runs a workload's TorchStep(..., "
            f"micro_batches={number}), and simulate times this one"
        )

    def difference(self, other: Parallelism) -> str | None:
        """The first value that makes another step, and the one of `other`: `micro_batches: 8 is not 1`; or None."""
        mine, theirs = self.knobs(), other.knobs()
        for each in fields(self):
            if mine.get(each.name) != theirs.get(each.name):
                return f"{each.name}: {getattr(self, each.name)!r} is not {getattr(other, each.name)!r}"
        return None
