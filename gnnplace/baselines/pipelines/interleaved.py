"""Interleaved 1F1B (Narayanan et al., SC 2021, section 2.2.2): a device has several stages, its chunks.

With v chunks, stage c p + d is on device d. Micro-batches go in rounds of p, so p divides their number. A device runs a
round's forward passes over its first chunk, then over its second, and so on, and the backward passes from the last
chunk to the first. A step idles for (p - 1)(F + B + W) / v, where F, B and W are the passes over a whole device; it
sends v times as much.
"""

from __future__ import annotations

from gnnplace.baselines.pipelines.actions import Action, Table, checked

CHUNKS = 2


def interleaved_1f1b(devices: int, micro_batches: int, chunks: int = CHUNKS) -> Table:
    """The actions of as many of the devices as divide the micro-batches into rounds.

    >>> print(*interleaved_1f1b(2, 2)[1])
    1F0 1F1 3F0 3F1 3BW0 3BW1 1BW0 1BW1
    """
    used = max(number for number in range(1, devices + 1) if micro_batches % number == 0)
    return checked([_order(used, micro_batches, chunks, device) for device in range(used)])


def _order(devices: int, micro_batches: int, chunks: int, device: int) -> list[Action]:
    passes = micro_batches * chunks
    ahead = passes if micro_batches == devices else 2 * (devices - device - 1) + (chunks - 1) * devices

    def place(number: int) -> tuple[int, int]:
        """The chunk and the micro-batch of a device's pass of this number."""
        turn, within = divmod(number, devices * chunks)
        return within // devices, turn * devices + within % devices

    def forward(number: int) -> Action:
        chunk, copy = place(number)
        return Action("F", chunk * devices + device, copy)

    def backward(number: int) -> Action:
        chunk, copy = place(number)
        return Action("BW", (chunks - 1 - chunk) * devices + device, copy)

    ahead = min(ahead, passes)
    order = [forward(number) for number in range(ahead)]
    for number in range(passes):
        if number + ahead < passes:
            order.append(forward(number + ahead))
        order.append(backward(number))
    return order
