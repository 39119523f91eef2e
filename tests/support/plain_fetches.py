"""Fetches in the plain implementation: docs/execution-model.md#fetches."""

from __future__ import annotations

from dataclasses import replace

from support.plain_repetition import BACKWARD, SMALL, Tensor
from support.plain_steps import Edge, Key, Step

from gnnplace.graph import CONTROL, Op


def fetched(step: Step, ops: list[Op], edges: list[Edge]) -> tuple[list[Op], list[Edge], list[Key]]:
    """The ops, edges and keys of a step in which each pass of each micro-batch fetches the weights that it reads."""
    parts, keys, place = step.parts, list(step.keys), places(len(ops), edges)
    running = {v for i, v in parts.writers if i not in parts.once}
    made, joins = list(ops), set(edges)
    readers: dict[tuple[int, Tensor, bool], list[int]] = {}
    for s, k, d in joins:
        (what, i, *_), (kind, j, _, m, _) = keys[s], keys[d]
        read = (what, kind) == ("op", "op") and k != CONTROL and i in parts.weights and j not in parts.once
        if read and ops[s].outputs[k].bytes > SMALL and parts.root((i, k))[0] not in running:
            readers.setdefault((m, (s, k), ops[d].phase in BACKWARD), []).append(d)
    first = {use: min(found, key=place.__getitem__) for use, found in readers.items()}
    blocks: list[tuple[int, int | None, int]] = []  # micro-batch, block and first reader of those so far
    for use in sorted(readers, key=lambda use: (use[0], place[first[use]], use[1])):
        (m, (s, k), backward), n = use, len(made)
        owner = step.copy(parts.root((keys[s][1], k))[0], m, 0)
        group = made[owner].colocation or f"{made[owner].name}/fetch"
        made[owner] = replace(made[owner], colocation=group)
        name = f"{ops[s].name}/fetch{k or ''}@{m}{'b' if backward else ''}"
        output = replace(ops[s].outputs[k], alias_of=None, is_result=False)
        made.append(Op(name, "fetch", (output,), kernel=False, allowed=made[owner].allowed, colocation=group, layer=ops[s].layer,
                       phase="backward_data" if backward else "forward", canonical_kind="other"))  # fmt: skip
        keys.append(("fetch", keys[s][1], k, m, 0))
        joins.add((s, k, n))
        for d in readers[use]:
            joins = joins - {(s, k, d)} | {(n, 0, d)}
            outputs = [replace(each, alias_of=(n, 0)) if each.alias_of == (s, k) else each for each in made[d].outputs]
            made[d] = replace(made[d], outputs=tuple(outputs))
        if not blocks or blocks[-1][:2] != (m, ops[first[use]].block):
            blocks.append((m, ops[first[use]].block, first[use]))
        if len(blocks) > 1 and blocks[-2][0] == m:
            joins.add((blocks[-2][2], CONTROL, n))
    return made, sorted(joins), keys


def places(number: int, edges: list[Edge]) -> dict[int, tuple[int, int]]:
    """By op the number of edges on the longest path to it, and its number. Raises ValueError for a cycle."""
    before: list[set[int]] = [set() for _ in range(number)]
    for s, _, d in edges:
        before[d].add(s)
    level: dict[int, int] = {}
    while len(level) < number:
        found = {
            i: max((level[s] + 1 for s in before[i]), default=0) for i in range(number) if i not in level and before[i] <= level.keys()
        }
        if not found:
            raise ValueError("the step has a cycle")
        level |= found
    return {i: (level[i], i) for i in level}
