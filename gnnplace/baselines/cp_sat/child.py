"""The child process of CP-SAT: `python -m gnnplace.baselines.cp_sat.child` answers pickled requests of its parent.

It ends when its stdin ends, even during a search, so that a parent that was killed leaves no search behind. Output of
libraries goes to stderr.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any


def main() -> None:
    """Reads requests from stdin and writes solutions or errors to stdout."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        with suppress(BrokenPipeError):  # the parent has ended, and `_receive` ends this process
            pickle.dump(_answer(requests.get()), answers)
            answers.flush()


def _receive(requests: SimpleQueue[Any]) -> None:
    """Passes requests on, and ends the process when there are no more."""
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _answer(request: Any) -> Any:
    try:
        from gnnplace.baselines.cp_sat.search import search

        return search(*request)
    except ValueError as error:
        return error
    except Exception as error:  # OR-Tools may fail in any way
        return ChildProcessError(f"{type(error).__name__}: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
