"""Imported by every Python of a watched command: notes what it opens, lists, runs and imports, a line each, in the file SEEN."""

import os
import sys

NOTED = {"open": "opened", "os.listdir": "listed", "os.scandir": "listed", "subprocess.Popen": "ran", "os.exec": "ran"}
_within = False


def _note(event, given):
    global _within
    if _within or (event not in NOTED and event != "import"):
        return
    _within = True
    try:
        if event == "import":
            line = f"imported\t{given[0]}"
        elif not isinstance(given[0], str | bytes | os.PathLike):
            return  # a descriptor
        else:
            path = os.fsdecode(given[0])
            path = path if event in ("subprocess.Popen", "os.exec") and os.sep not in path else os.path.abspath(path)
            line = f"{NOTED[event]}\t{path}"
        with open(os.environ["SEEN"], "a", errors="surrogateescape") as notes:
            notes.write(line.replace("\n", " ") + "\n")
    except OSError as error:  # of the folder in which the process is, which may be gone
        sys.stderr.write(f"not noted: {event} {given[0]!r}: {error}\n")
    finally:
        _within = False


if "SEEN" in os.environ:
    sys.addaudithook(_note)
