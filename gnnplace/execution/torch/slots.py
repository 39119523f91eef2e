"""Where messages lie in the memory of the device that receives them: two share bytes where the one is certainly done
with before the other is sent, or where both bring the same bytes.

Certain is what every run has: the order within each program, and that what is received has been sent (vector clocks;
Fidge 1988, Mattern 1989). A message is done with after the last instruction that uses it, or any view of it.
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
    """The offset of each message by its number, from the start of its
    receiver's arena; and the bytes of each device's arena.
    """

    offsets: Mapping[int, int]
    arena_bytes: tuple[int, ...]


def slots(programs: Sequence[DeviceProgram]) -> Slots:
    """Places all messages: the largest first, each in the smallest gap that
    takes it (Pisarchyk & Lee 2020), by number where equal.
    """
    progress = _progress_when_sent(programs)
    offsets: dict[int, int] = {}
    arenas = []
    for program in programs:
        last, buffers = (
            _last_uses(program),
            sorted(_buffers(program), key=lambda messages: (-_size(messages[0]), messages[0].number)),
        )
        places, arena = _placed(
            np.array([_size(messages[0]) for messages in buffers], dtype=np.int64),
            np.array([max(last[message.number] for message in messages) for messages in buffers], dtype=np.int64),
            np.array(
                [min(progress[message.number][program.device] for message in messages) for messages in buffers],
                dtype=np.int64,
            ),
        )
        offsets |= {
            message.number: place for messages, place in zip(buffers, places, strict=True) for message in messages
        }
        arenas.append(arena)
    return Slots(offsets, tuple(arenas))


def _buffers(program: DeviceProgram) -> list[list[Message]]:
    """The messages that a device receives, those of one buffer together."""
    buffers: dict[int, list[Message]] = {}
    for line in program.instructions:
        if isinstance(line, Receive) and isinstance(line.what, Message):
            buffers.setdefault(line.what.buffer, []).append(line.what)
    return list(buffers.values())


def _placed(
    size: Int64[np.ndarray, " messages"], last: Int64[np.ndarray, " messages"], progress: Int64[np.ndarray, " messages"]
) -> tuple[list[int], int]:
    """Offsets in one arena, in this order, and its bytes.

    When a message is sent, the first `progress` instructions here have ended.
    """
    start = np.zeros(len(size), dtype=np.int64)
    arena = 0
    for m in range(len(size)):
        apart = (last[:m] < progress[m]) | (last[m] < progress[:m])
        start[m] = _best_gap(start[:m][~apart], size[:m][~apart], int(size[m]), arena)
        arena = max(arena, int(start[m] + size[m]))
    return start.tolist(), arena


def _best_gap(start: Int64[np.ndarray, " taken"], size: Int64[np.ndarray, " taken"], wanted: int, arena: int) -> int:
    """The lowest of the smallest gaps between what is taken that hold so
    many bytes; without one, the end of what is taken.
    """
    order = np.argsort(start, kind="stable")
    begin = np.concatenate([[0], np.maximum.accumulate((start + size)[order])])
    gap = np.append(start[order], arena) - begin
    fits = np.flatnonzero(gap >= wanted)
    return int(begin[fits[np.argmin(gap[fits])]] if len(fits) else begin[-1])


class Lifetime(NamedTuple):
    """How long a device holds a buffer of messages: from the start of their first sending to the end of their last use
    or sending.

    Sendings are pairs (device, mark), uses marks of the holder itself (see `Message.mark`).
    """

    bytes: int
    holder: int
    sendings: tuple[tuple[int, int], ...]
    uses: tuple[int, ...]


def lifetimes(programs: Sequence[DeviceProgram]) -> list[Lifetime]:
    """Of all messages. One that nobody uses is gone when it has come."""
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
    """For each message and signal how many instructions of each device have certainly ended when it is sent."""
    clocks = [[0] * len(programs) for _ in programs]
    sent: dict[int, list[int]] = {}
    moved = True
    while moved:
        moved = False
        for program, clock in zip(programs, clocks, strict=True):
            here = program.device
            for instruction in program.instructions[clock[here] :]:
                if isinstance(instruction, Receive):
                    if instruction.what.number not in sent:
                        break
                    clock[:] = map(max, clock, sent[instruction.what.number])
                elif isinstance(instruction, Send):
                    sent[instruction.what.number] = clock.copy()
                clock[here] += 1
                moved = True
    assert all(
        clock[program.device] == len(program.instructions) for program, clock in zip(programs, clocks, strict=True)
    )
    return sent


def _last_uses(program: DeviceProgram) -> dict[int, int]:
    """The place of the last instruction that uses each message of those that the program receives."""
    within: dict[Node, frozenset[int]] = {}  # the messages in whose bytes a value lies
    last: dict[int, int] = {}
    for place, instruction in enumerate(program.instructions):
        match instruction:
            case Receive(Message() as message):
                within[message.node] = frozenset([message.number])
                used = [message.node]
            case Send(Message() as message):
                used = [message.node]
            case OpRun(_, _, node, picks):
                used = [parent for parent in node.all_input_nodes if parent in within]
                for value in (node, *picks):
                    within[value] = frozenset[int]().union(
                        *(within[parent] for parent in used if _is_view(value, parent))
                    )
            case _:
                continue
        last |= dict.fromkeys((number for node in used for number in within.get(node, ())), place)
    return last


def _is_view(node: Node, parent: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and shares(value, parent.meta["val"])


def _size(message: Message) -> int:
    return -(-message.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
