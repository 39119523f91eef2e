"""Random cases whose ops run fused: those of `random_problems` with kinds, on few devices. Some of the fusions are refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from support.plain_fusion import refused
from support.random_problems import Case, random_case

KINDS = ("elementwise", "activation", "reduce", "reshape", "elementwise", "activation", "matmul", None, "variable")


def fused_case(seed: int) -> Case:
    """The case of a seed with kinds and a fusion."""
    random = Random(f"fused {seed}")
    case = with_kinds(random, random_case(seed))
    few = random.sample(range(len(case.cluster["devices"])), random.choice([1, 1, min(2, len(case.cluster["devices"]))]))
    device = [random.choice(few) if random.random() < 0.9 else d for d in case.device]
    return replace(case, device=device, fusion=random_fusion(random, case, device))


def with_kinds(random: Random, case: Case) -> Case:
    """The case with a canonical kind for most ops, and less state; more of its tensors are read once."""
    ops = []
    for op in case.graph["ops"]:
        kind = random.choice(KINDS)
        kinds = {} if kind is None else {"canonical_kind": kind}
        ops.append({key: value for key, value in op.items() if key != "persistent_bytes" or random.random() < 0.15} | kinds)
    return replace(case, graph=case.graph | {"ops": ops})


def random_fusion(random: Random, case: Case, device: list[int]) -> list[int]:
    """Labels after joining ends of random edges where that is not refused; now and then, some at random."""
    ops, edges = len(case.graph["ops"]), [edge for edge in case.graph["edges"] if edge[1] >= 0]
    fusion = list(range(ops))
    for source, _, reader in random.sample(edges, random.randint(0, len(edges))):
        joined = [fusion[source] if label == fusion[reader] else label for label in fusion]
        if not refused(case.graph, device, joined):
            fusion = joined
    if random.random() < 0.1:
        for _ in range(random.choice([1, 1, 2])):
            fusion[random.randrange(ops)] = random.choice(fusion)
    return fusion
