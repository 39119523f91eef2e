"""Which instruction of a set of programs certainly ends before which, by brute force: the closure of program order and messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.execution.torch.program import DeviceProgram, OpRun, Receive, Send

At = tuple[int, int]  # (device, place in its program)


class HappensBefore:
    """`order(a, b)`: a has ended when b begins, in every run. Fails where the programs wait for each other in a circle.

    `calls` are the places of ops, `sends` and `receives` those of messages and signals by number.
    """

    def __init__(self, programs: Sequence[DeviceProgram]) -> None:
        lines = [((program.device, place), line) for program in programs for place, line in enumerate(program.instructions)]
        self._index = {at: index for index, (at, _) in enumerate(lines)}
        self.calls = {line.op: at for at, line in lines if isinstance(line, OpRun)}
        self.sends = {line.what.number: at for at, line in lines if isinstance(line, Send)}
        self.receives = {line.what.number: at for at, line in lines if isinstance(line, Receive)}
        before = np.zeros((len(lines), len(lines)), dtype=bool)
        for (device, place), index in self._index.items():
            if place:
                before[self._index[device, place - 1], index] = True
        for number, at in self.receives.items():
            before[self._index[self.sends[number]], self._index[at]] = True
        while True:
            further = before | (before.astype(np.float32) @ before.astype(np.float32) > 0)
            if np.array_equal(further, before):
                break
            before = further
        assert not before.diagonal().any(), "the programs wait for each other"
        self._before = before

    def __call__(self, first: At, second: At) -> bool:
        return bool(self._before[self._index[first], self._index[second]])
