"""`gnnplace COMMAND ...`: finds the command, runs it, and turns what goes wrong into one line and an exit status.

Each command is two modules, imported when it is asked for. That in `gnnplace.commands.arguments` parses what follows the command and
imports nothing that takes time, so that `--help` and usage errors are quick; that in `gnnplace.commands` has `main(chosen) -> status`.
"""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FrameType, ModuleType

from gnnplace.commands.usage import BAD_INPUT, DONE, INTERRUPTED, TERMINATED, USAGE, Parser
from gnnplace.complaints import UsageError
from gnnplace.isolation import settings
from gnnplace.printable import printable
from gnnplace.version import VERSION

COMMANDS = {
    "train": "train a placement policy on one graph or many",
    "place": "find a placement of a graph on a cluster, with a planner or a trained policy",
    "simulate": "the step time and memory of a placement",
    "explain": "why a placed step takes as long as it does, and what would shorten it",
    "export": "a placement as other programs read it: accelerate, Perfetto, Graphviz, GraphML",
    "report": "trainings as a page: learning curves, policies beside heuristics and the bound",
    "compare": "every planner on one problem: step time, memory, bound, planning time",
    "measure": "run a placed step on this machine's devices and time it",
    "profile": "measure every op of a workload and every link on this machine",
    "calibrate": "this machine as a cluster file, fitted to measured workloads",
    "clusters": "machines: list the hardware that is known, show one, write one down as a cluster file",
    "graphs": "the corpus: list, show, import, and synthetic graphs of its costs",
}


class Terminated(BaseException):
    """SIGTERM, raised where the program stands so that files under way are cleaned up."""


SIGNALS: dict[signal.Signals, type[BaseException]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; usage errors and `--help` exit."""
    parser = Parser("", "Device placement of neural-network training steps: learned planners, baselines, an exact simulator.")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "commands:\n" + "\n".join(f"  {name:10} {purpose}" for name, purpose in COMMANDS.items())
    parser.add_argument("--version", action="version", version=f"gnnplace {VERSION}")
    parser.add_argument("command", choices=tuple(COMMANDS), metavar="COMMAND", help="one of those below; COMMAND --help says more")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the command's arguments")
    chosen = parser.parse_args(arguments)
    settings.leave_those_of_this_folder()
    came = list[BaseException]()
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, _raising(SIGNALS[number], came)) for number in heard}
    try:
        return _run(chosen.command, chosen.arguments, came)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(command: str, arguments: list[str], came: Sequence[BaseException]) -> int:
    """Runs a command. `came` is what signals have raised: a library may have made an error of its own of it, as pydantic does."""
    try:
        chosen = import_module(f"gnnplace.commands.arguments.{command}").parse(arguments)
        chosen.command_line = shlex.join(["gnnplace", command, *arguments])
        status = int(_imported(f"gnnplace.commands.{command}").main(chosen))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has left: not an error, and Python must not flush again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (Exception, KeyboardInterrupt, Terminated) as error:
        return _ended(command, came[0] if came else error)
    return status


def _ended(command: str, error: BaseException) -> int:
    """Says in one line what ended a command, and returns its exit status."""
    try:
        raise error
    except UsageError:
        sys.exit(_complain(command, f"error: {error}; see gnnplace {command} --help", USAGE))
    except ValueError:
        return _complain(command, str(error), BAD_INPUT)
    except OSError as failed:
        said = f"{failed.filename}: {failed.strerror}" if failed.filename else str(failed.strerror or failed)
        return _complain(command, said, BAD_INPUT)
    except KeyboardInterrupt:
        return _complain(command, "interrupted", INTERRUPTED)
    except Terminated:
        return _complain(command, "terminated", TERMINATED)


def _imported(name: str) -> ModuleType:
    """A module. What it imports stays, so Python's collector of garbage visits none of it: not meanwhile, not later, not at the end."""
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _complain(command: str, message: str, status: int) -> int:
    print(printable(f"gnnplace {command}: {' '.join(message.splitlines())}"), file=sys.stderr)
    return status


def _raising(error: type[BaseException], came: list[BaseException]) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, frame: FrameType | None) -> None:
        came.append(error())
        raise came[-1]

    return handler
