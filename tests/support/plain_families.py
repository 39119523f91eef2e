"""Families of weights in the plain implementation: docs/execution-model.md#families.

A family is its shares; what has one home has the family `HOME`, which has none.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from support.plain_repetition import Parts

Family = tuple[int, ...]
HOME: Family = ()


class Families:
    """The family of each op, and the replica on which each family works on each micro-batch."""

    def __init__(self, parts: Parts, shares: Family, family_shares: tuple[tuple[str, Family], ...], one_home: tuple[str, ...]) -> None:
        self.parts, self.shares = parts, shares
        given = [(name, family) for name, family in family_shares] + [(name, HOME) for name in one_home]
        for name, family in given:
            layers = self.in_layers(name)
            if not (layers & parts.variables if family == HOME else layers):
                raise ValueError("a name of no layer, or of one without a variable")
        claims = {i: {family for name, family in given if i in self.in_layers(name)} for i in parts.all}
        if any(len(families) > 1 for families in claims.values()):
            raise ValueError("a layer of two families")
        self.layer = {i: next(iter(claims[i]), shares) for i in parts.all}
        self.of = self.found()
        self.places = {family: self.placed(family) for family in {shares, HOME, *(family for _, family in family_shares)}}

    def in_layers(self, name: str) -> set[int]:
        patterns = (name, f"{name}.*", f"{name}/*")
        return {i for i in self.parts.all if any(fnmatchcase(self.parts.ops[i].layer or "", each) for each in patterns)}

    def first(self, families: list[Family]) -> Family:
        """Of several families, that with the fewest replicas; then that with the least shares, the step's own last."""
        return min(families, key=lambda each: (sum(share > 0 for share in each), each == self.shares, each))

    def last(self, families: list[Family]) -> Family:
        return max(families, key=lambda each: (sum(share > 0 for share in each), each == self.shares, each))

    def found(self) -> dict[int, Family]:
        parts = self.parts
        of = {i: self.layer[i] if i in parts.variables else self.shares for i in parts.all}
        for i in parts.order:
            if i in parts.once - parts.variables:
                of[i] = self.first([self.shares, *(of[o] for s, k in parts.reads[i] for o in (s, parts.root((s, k))[0]))])
        for i in reversed(parts.order):
            readers = [j for j in parts.all if any(s == i for s, _ in parts.reads[j])]
            if i in parts.once and of[i] == self.shares and readers:
                of[i] = self.last([of[j] for j in readers])
        homeless = {i: self.shares if self.layer[i] == HOME else self.layer[i] for i in parts.all}
        return {i: of[i] if i in parts.once else homeless[i] for i in parts.all}

    def having(self, family: Family) -> list[int]:
        """The replicas that have a family."""
        return [0] if family == HOME else [r for r, share in enumerate(family) if share]

    def on(self, family: Family, r: int) -> int:
        """The replica whose copy an op on replica r reads."""
        return r if r in self.having(family) else self.having(family)[0]

    def replica(self, family: Family, m: int) -> int:
        """The replica on which a family works on a micro-batch."""
        return self.places[family][m]

    def placed(self, family: Family) -> list[int]:
        own = [r for r, share in enumerate(self.shares) for _ in range(share)]
        if family == HOME:
            return [0 for _ in own]
        room, places = list(family), {}
        for m, r in enumerate(own):
            if room[r]:
                places[m], room[r] = r, room[r] - 1
        for m in range(len(own)):
            if m not in places:
                r = next(r for r, free in enumerate(room) if free)
                places[m], room[r] = r, room[r] - 1
        return [places[m] for m in range(len(own))]

    def micro_batches(self, family: Family, r: int) -> list[int]:
        return [m for m in range(sum(self.shares)) if self.replica(family, m) == r]
