"""Messages that share memory: only where every run is done with the one before the other is sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

import pytest
import torch
from support.happens_before import HappensBefore
from support.torch_steps import STEPS, planned, problem, random_placement, traced, workload
from torch import Tensor

from gnnplace.execution.torch.program import DeviceProgram, Message, OpRun, Receive, Send, programs
from gnnplace.execution.torch.shared_memory import SharedMemory
from gnnplace.execution.torch.slots import Slots, slots
from gnnplace.execution.torch.values import Node, is_random
from gnnplace.frontends.torch.buffers import shares

CASES = [(name, devices, seed) for name in STEPS for devices, seed in ((2, 3), (3, 4))]


def _programs(name: str, devices: int, seed: int) -> tuple[DeviceProgram, ...]:
    step = traced(name)
    cluster = problem(step.graph, devices)
    return programs(step, planned(cluster, random_placement(cluster, seed))[0])


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_messages_whose_lifetimes_may_overlap_share_no_byte(name: str, devices: int, seed: int) -> None:
    found = _programs(name, devices, seed)
    order, placed = HappensBefore(found), slots(found)
    for program in found:
        uses = _uses(program)
        assert all(0 <= placed.offsets[m.number] <= placed.arena_bytes[program.device] - m.bytes for m in uses)
        for message in uses:
            for other in uses:
                if message.buffer < other.buffer and _overlap(placed, message, other):
                    assert _done_before(order, uses, message, other) or _done_before(order, uses, other, message)


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_messages_of_one_buffer_are_all_of_its_bytes_and_lie_in_one_place(name: str, devices: int, seed: int) -> None:
    found = _programs(name, devices, seed)
    placed, shared = slots(found), 0
    for program in found:
        received = list(_uses(program))
        for first, message in ((m, other) for m in received for other in received if m.buffer == other.buffer and m.number < other.number):
            assert shares(first.node.meta["val"], message.node.meta["val"])
            assert placed.offsets[first.number] == placed.offsets[message.number]
            assert first.bytes == message.bytes == message.node.meta["val"].untyped_storage().nbytes()
            shared += 1
    assert shared or name not in ("cells", "branches")


def test_memory_is_used_again() -> None:
    """Of the messages of a random placement, at most as many bytes as they have together, and fewer in all but tiny cases."""
    found = _programs("cells", 2, 0)
    together = sum(message.bytes for program in found for message in _uses(program))
    assert sum(slots(found).arena_bytes) < together / 2


@pytest.mark.parametrize(("name", "devices", "seed"), CASES)
def test_in_any_order_of_the_devices_the_step_computes_the_same(name: str, devices: int, seed: int) -> None:
    """Programs taken turn by turn in one process, in an order drawn at random: shared memory changes no bit of what they compute, and
    but for rounding (a copy may have other strides) it is what the trace computes.
    """
    step, found = workload(name), _programs(name, devices, seed)
    loss, held = _run(found, _apart(found), step, random.Random(0))
    whole = _whole(step)
    torch.testing.assert_close(loss, whole[0])
    assert all(torch.allclose(held[node], value, rtol=1e-4, atol=1e-4) for node, value in whole[1].items())
    for draw in range(2):
        loss_too, held_too = _run(found, slots(found), step, random.Random(draw))
        assert torch.equal(loss_too, loss)
        assert all(torch.equal(held_too[node], value) for node, value in held.items())


def _apart(found: tuple[DeviceProgram, ...]) -> Slots:
    """No byte is shared."""
    messages = [list(_uses(program)) for program in found]
    arenas = [list(accumulate((-(-message.bytes // 64) * 64 for message in received), initial=0)) for received in messages]
    offsets = {
        m.number: offset for received, arena in zip(messages, arenas, strict=True) for m, offset in zip(received, arena, strict=False)
    }
    return Slots(offsets, tuple(arena[-1] for arena in arenas))


def _run(found: tuple[DeviceProgram, ...], placed: Slots, step, draw: random.Random) -> tuple[Tensor, dict[Node, Tensor]]:
    numbers = [line.what.number for program in found for line in program.instructions if isinstance(line, Send)]
    shared = SharedMemory(placed, max(numbers, default=-1) + 1, len(found))
    shared.step = 1
    sent: set[int] = set()
    held = {node: value.detach().clone() for node, value in step._held.values.items()}
    loss: list[Tensor] = []
    waiting = {program.device: _turns(program, shared, held, sent, step._held.losses[0], loss) for program in found}
    speed = [draw.random() ** 3 for _ in found]
    blocked: set[int] = set()
    while waiting:
        device = draw.choices(list(waiting), [speed[d] + 1e-3 for d in waiting])[0]
        moved = next(waiting[device], None)
        blocked = blocked | {device} if moved is False else set()
        assert len(blocked) < len(found), "the programs wait for each other"
        if moved is None:
            del waiting[device]
    return loss[0], held


def _turns(
    program: DeviceProgram, shared: SharedMemory, held: dict[Node, Tensor], sent: set[int], loss: Node, losses: list[Tensor]
) -> Iterator[bool]:
    """Runs the program, an instruction a turn; False for a turn in which it can only wait."""
    values: dict[Node, Tensor] = {node: held[node] for node in program.held}
    for line in program.instructions:
        match line:
            case Receive(what):
                while what.number not in sent:
                    yield False
                if isinstance(what, Message):
                    values[what.node] = shared.receiver(what)()
            case Send(what):
                if isinstance(what, Message):
                    shared.sender(what)(values[what.node])
                sent.add(what.number)
            case OpRun(op, first, node, picks):
                for called in (*first, node, *picks):
                    _call(op, called, values)
                if loss in (node, *picks):
                    losses.append(values[loss].clone())
        yield True


def _call(op: int, node: Node, values: dict[Node, Tensor]) -> None:
    if is_random(node):
        torch.manual_seed(op)
    arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    values[node] = node.target(*arguments, **named)


def _whole(step) -> tuple[Tensor, dict[Node, Tensor]]:
    """The trace itself, op after op."""
    held = {node: value.detach().clone() for node, value in step._held.values.items()}
    values = dict(held)
    for node in step._traced.trace.graph.nodes:
        if node.op == "call_function":
            _call(step._traced.op_of.get(node, 0), node, values)
    return values[step._held.losses[0]], {node: held[node] for node in step._held.names}


def _uses(program: DeviceProgram) -> dict[Message, list[int]]:
    """The places where each received message, or a view of it, is used: all values are followed, one after another."""
    received: dict[Message, list[int]] = {}
    views: dict[Message, set[Node]] = {}
    for place, line in enumerate(program.instructions):
        if isinstance(line, Receive) and isinstance(line.what, Message):
            received[line.what], views[line.what] = [place], {line.what.node}
        for message, nodes in views.items():
            if isinstance(line, Send) and isinstance(line.what, Message) and line.what.node in nodes:
                received[message].append(place)
            elif isinstance(line, OpRun) and nodes.intersection(line.node.all_input_nodes):
                received[message].append(place)
                made = [node for node in (line.node, *line.picks) if isinstance(node.meta.get("val"), Tensor)]
                nodes.update(node for node in made if shares(node.meta["val"], message.node.meta["val"]))
    return received


def _done_before(order: HappensBefore, uses: dict[Message, list[int]], first: Message, second: Message) -> bool:
    return all(order((first.dst, place), order.sends[second.number]) for place in uses[first])


def _overlap(placed: Slots, first: Message, second: Message) -> bool:
    a, b = placed.offsets[first.number], placed.offsets[second.number]
    return a < b + second.bytes and b < a + first.bytes
