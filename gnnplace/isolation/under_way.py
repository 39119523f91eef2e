"""What is under way in this process, and is undone where a signal ends it at once (`gnnplace.start`): nothing unwinds
the stack then.

A process that is killed undoes nothing. So what is registered here may also stay: a temporary that the next process of
that name removes, a child that ends by itself a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_UNDO: list[Callable[[], object]] = []


@contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Within the context, `undo` is called where a signal ends the
    process; it may find its work done, in part or in whole.
    """
    _UNDO.append(undo)
    try:
        yield
    finally:
        _UNDO.remove(undo)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """The path of a new folder, which goes with the context or with the process."""
    import shutil  # these are imported after `gnnplace.start` handles signals, and it imports this module
    import tempfile

    with tempfile.TemporaryDirectory() as folder, undone(lambda: shutil.rmtree(folder, ignore_errors=True)):
        yield folder


def undo_all() -> None:
    """Undoes what is under way, the latest first, whatever of it fails."""
    for undo in reversed(_UNDO):
        with suppress(Exception):  # the process ends, and has one line to say
            undo()
