"""What processes ask of Linux, in processes of their own."""

import ctypes
import mmap
import os
import platform
import resource
import struct
import time

import numpy as np
import pytest

from gnnplace.isolation.linux import keep_freed_memory, limit_memory, processor_ns, short_slices, without_memory_limit
from gnnplace.isolation.worker import Worker, answers

CALLS, TENSORS, ELEMENTS = 8, 8, 2**21  # 128 MiB a call


def page_faults() -> int:
    """Of calls that make and free large arrays, after two that don't count."""
    before = 0
    for call in range(2 + CALLS):
        if call == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [np.ones(ELEMENTS) for _ in range(TENSORS)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def in_a_fork(function):
    """What a function returns in a process that nothing was asked for."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, str(function()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    found = os.read(mine, 100).decode()
    os.close(mine)
    os.close(theirs)
    return found


def kept() -> int:
    keep_freed_memory()
    return page_faults()


def test_kept_memory_has_its_pages():
    written = CALLS * TENSORS * ELEMENTS * 8 // resource.getpagesize()
    assert int(in_a_fork(kept)) < written / 100


def test_a_limit_below_nothing_is_one():
    def limit_bytes() -> int:
        limit_memory(-(2**60))
        return resource.getrlimit(resource.RLIMIT_DATA)[0]

    assert 0 < int(in_a_fork(limit_bytes)) < 2**50


def test_a_limit_is_lifted_for_a_while():
    def take(count: int) -> None:  # of the system: this process may have freed so much, and kept it
        mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()

    def outcome() -> int:
        limit_memory(2**24)
        before = resource.getrlimit(resource.RLIMIT_DATA)[0]
        with without_memory_limit():
            take(2**28)
        try:
            take(2**28)
        except OSError:
            return int(resource.getrlimit(resource.RLIMIT_DATA)[0] == before)
        return 2

    assert int(in_a_fork(outcome)) == 1


def test_workers_keep_their_memory():
    worker = Worker("cpu:0", None, None, lambda connection: connection.send(page_faults()))
    try:
        assert answers([worker])[0] < CALLS * TENSORS * ELEMENTS * 8 // resource.getpagesize() / 100
    finally:
        worker.kill()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the system call")
@pytest.mark.skipif(tuple(map(int, platform.release().split(".")[:2])) < (6, 12), reason="kernels before 6.12 have one slice for all")
def test_slices_are_short_and_threads_have_them_too():
    def asked() -> list[int]:
        attributes = ctypes.create_string_buffer(56)
        ctypes.CDLL(None).syscall(315, 0, attributes, 56, 0)
        return list(struct.unpack("=IIQiIQQQ", attributes.raw[:48]))[1:6]

    before = eval(in_a_fork(asked))
    policy, flags, nice, priority, slice_ns = eval(in_a_fork(lambda: (short_slices(), asked())[1]))
    assert slice_ns == 100_000 <= before[4]  # equal where this process has asked for them before
    assert [policy, flags, nice, priority] == before[:4]


def test_the_processor_time_of_a_process_is_that_of_its_clock():
    before = time.process_time_ns()
    assert before <= processor_ns(os.getpid()) <= time.process_time_ns()
    sum(range(10**6))
    assert processor_ns(os.getpid()) > before
