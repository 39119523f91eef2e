"""The slots of messages in the memory of the device that receives them.

Two messages share bytes if every run uses the one for the last time before the other is sent, or if both bring the same
bytes. What every run has in common is the order within each program, and that a message is sent before it is received
(vector clocks; Fidge 1988, Mattern 1989). The last use of a message is the last instruction that uses it or a view of
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64
from torch import Tensor

from gnnplace.execution.torch.program import DeviceProgram, Message, OpRun, Receive, Send
from gnnplace.execution.torch.values import Node
from gnnplace.frontends.torch.buffers import shares

ALIGNMENT_BYTES = 64  # a cache line


class Slots(NamedTuple):
    """The offset of each message in its receiver's arena, by its number, and the bytes of each device's arena."""

    offsets: Mapping[int, int]
    arena_bytes: tuple[int, ...]


def slots(programs: Sequence[DeviceProgram]) -> Slots:
    """A slot for each message: the largest first, each in the smallest gap that holds it (Pisarchyk & Lee 2020).

    Messages of one size are in the order of their numbers.
    """
    progress = _progress_when_sent(programs)
    offsets: dict[int, int] = {}
    arenas = []
    for program in programs:
        last = _last_uses(program)
        buffers = sorted(_buffers(program), key=lambda messages: (-_size(messages[0]), messages[0].number))
        starts, arena_bytes = _packed(
            np.array([_size(messages[0]) for messages in buffers], dtype=np.int64),
            np.array([max(last[message.number] for message in messages) for messages in buffers], dtype=np.int64),
            np.array(
                [min(progress[message.number][program.device] for message in messages) for messages in buffers],
                dtype=np.int64,
            ),
        )
        offsets |= {
            message.number: start for messages, start in zip(buffers, starts, strict=True) for message in messages
        }
        arenas.append(arena_bytes)
    return Slots(offsets, tuple(arenas))


def _buffers(program: DeviceProgram) -> list[list[Message]]:
    """The messages that a device receives, grouped by buffer."""
    buffers: dict[int, list[Message]] = {}
    for message in program.received_messages:
        buffers.setdefault(message.buffer, []).append(message)
    return list(buffers.values())


def _packed(
    size: Int64[np.ndarray, " messages"], last: Int64[np.ndarray, " messages"], progress: Int64[np.ndarray, " messages"]
) -> tuple[list[int], int]:
    """The offsets of messages in one arena, and its bytes.

    `last` is the index of a message's last use. When it is sent, the first `progress` instructions of its receiver have
    ended.
    """
    start = np.zeros(len(size), dtype=np.int64)
    arena = 0
    for m in range(len(size)):
        apart = (last[:m] < progress[m]) | (last[m] < progress[:m])
        start[m] = _best_gap(start[:m][~apart], size[:m][~apart], int(size[m]), arena)
        arena = max(arena, int(start[m] + size[m]))
    return start.tolist(), arena


def _best_gap(start: Int64[np.ndarray, " taken"], size: Int64[np.ndarray, " taken"], wanted: int, arena: int) -> int:
    """The start of the smallest gap between taken spans that holds the wanted bytes, the lowest of equals.

    If no gap holds them, the end of the taken spans.
    """
    order = np.argsort(start, kind="stable")
    begin = np.concatenate([[0], np.maximum.accumulate((start + size)[order])])
    gap = np.append(start[order], arena) - begin
    fits = np.flatnonzero(gap >= wanted)
    return int(begin[fits[np.argmin(gap[fits])]] if len(fits) else begin[-1])


class Lifetime(NamedTuple):
    """When a device holds a buffer of messages: from the start of the first sending to the end of the last use.

    A sending that ends later than all uses extends it.

    `sendings` are pairs (device, mark), `uses` marks of the holder (see `Message.mark`).
    """

    bytes: int
    holder: int
    sendings: tuple[tuple[int, int], ...]
    uses: tuple[int, ...]


def lifetimes(programs: Sequence[DeviceProgram]) -> list[Lifetime]:
    """The lifetimes of all messages. One that nobody uses ends on arrival."""
    lives = []
    for program in programs:
        last = _last_uses(program)
        for messages in _buffers(program):
            sendings = tuple((message.src, message.mark) for message in messages)
            uses: list[int] = []
            for message in messages:
                match program.instructions[last[message.number]]:
                    case OpRun(op):
                        uses.append(op)
                    case Send(Message() as passed_on):
                        uses.append(passed_on.mark)
            lives.append(Lifetime(messages[0].bytes, program.device, sendings, tuple(uses)))
    return lives


def _progress_when_sent(programs: Sequence[DeviceProgram]) -> dict[int, list[int]]:
    """How many instructions of each device have ended, in every run, when a message or signal is sent, by number."""
    clocks = [[0] * len(programs) for _ in programs]
    sent: dict[int, list[int]] = {}
    moved = True
    while moved:
        moved = False
        for program, clock in zip(programs, clocks, strict=True):
            device = program.device
            for instruction in program.instructions[clock[device] :]:
                if isinstance(instruction, Receive):
                    if instruction.what.number not in sent:
                        break
                    clock[:] = map(max, clock, sent[instruction.what.number])
                elif isinstance(instruction, Send):
                    sent[instruction.what.number] = clock.copy()
                clock[device] += 1
                moved = True
    assert all(
        clock[program.device] == len(program.instructions) for program, clock in zip(programs, clocks, strict=True)
    )
    return sent


def _last_uses(program: DeviceProgram) -> dict[int, int]:
    """The index of the last instruction that uses each received message or a view of it, by the message's number."""
    within: dict[Node, frozenset[int]] = {}  # the messages whose bytes hold a value
    last: dict[int, int] = {}
    for place, instruction in enumerate(program.instructions):
        match instruction:
            case Receive(Message() as message):
                within[message.node] = frozenset([message.number])
                used = [message.node]
            case Send(Message() as message):
                used = [message.node]
            case OpRun(_, _, node, picks):
                used = [parent for parent in instruction.inputs if parent in within]
                for value in (node, *picks):
                    within[value] = frozenset[int]().union(
                        *(within[parent] for parent in used if _is_view(value, parent))
                    )
            case _:
                continue
        last |= dict.fromkeys((number for node in used for number in within.get(node, ())), place)
    return last


def _is_view(node: Node, parent: Node) -> bool:
    """Whether the values of two nodes share memory."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and shares(value, parent.meta["val"])


def _size(message: Message) -> int:
    """The aligned bytes of a message."""
    return -(-message.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
