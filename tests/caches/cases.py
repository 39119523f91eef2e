"""Commands where machine code is damaged or can't be kept: damaged files, no space, and users without a home."""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from faults.case import Case
from traps.cases import COMMANDS, given, prepare

import gnnplace
from gnnplace import kept

PACKAGE = Path(gnnplace.__file__).parent
SETPRIV = shutil.which("setpriv")
SMALL = "simulate, with a picture"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "one bit of machine code": lambda content: (
        content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 1]) + content[len(content) // 2 + 1 :]
    ),
    "a pickle": lambda content: b"cos\nsystem\n(S'touch executed'\ntR.",
}
ROOM_BYTES = 100  # less than any kernel takes
USERS = {"nobody, whose home is missing": (65534, {"HOME": "/nonexistent"}), "a number without a name": (12345, {})}


def cases() -> Iterator[Case]:
    """Every damage; no space; every command without a home, where this is root, who alone can become somebody else."""
    for damage in DAMAGES:
        yield Case("damaged cache", damage, partial(_broken_by_damage, damage))
    yield Case("no room for the cache", "explain", _broken_by_space)
    if SETPRIV is not None and os.geteuid() == 0:
        for user in USERS:
            for name in COMMANDS:
                yield Case("no home", f"{user}: {name}", partial(_broken_without_home, user, name))


def _run(name: str, here: Path, *before: str, limit: Callable[[], None] | None = None, **environment: str) -> str | None:
    """What is wrong with a command in a folder: its status, what it says on stderr, what it lacks."""
    arguments, written, _ = COMMANDS[name]
    command = [*before, sys.executable, "-P", "-m", "gnnplace", *given(arguments)]
    variables = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "PYTHONPATH")}
    done = subprocess.run(command, cwd=here, env=variables | environment, capture_output=True, text=True, preexec_fn=limit, check=False)
    missing = [file for file in written if not (here / file).exists()]
    said = [line for line in done.stderr.splitlines() if not line.startswith("[W")]  # PyTorch's profiler, whatever home there is
    if done.returncode or missing or len(said) > 1 or (here / "executed").exists():
        return f"status {done.returncode}, lacks {missing}, says {said}"
    return None


def _broken_by_damage(damage: str, folder: Path) -> str | None:
    """All files are damaged at once; then all are as they were."""
    folder.mkdir()
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    if said := _run(SMALL, folder, **environment):
        return f"before: {said}"
    files = {path: path.read_bytes() for path in folder.glob("cache/gnnplace/*/*.nbi")}
    for path, content in files.items():
        path.write_bytes(DAMAGES[damage](content))
    if said := _run(SMALL, folder, **environment):
        return said
    found = {path: path.read_bytes() for path in folder.glob("cache/gnnplace/*/*")}
    if not files or found.keys() != files.keys():
        return f"{len(files)} files before, {len(found)} then"
    left = [path.name for path, content in files.items() if found[path] == DAMAGES[damage](content)]
    return f"left damaged: {left}" if left else None


def _broken_by_space(folder: Path) -> str | None:
    folder.mkdir()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))

    # without bytecode, which Python would leave in the package cut at the limit
    there = {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    said = _run("explain", folder, limit=limit, **there)
    left = [path.name for path in folder.rglob("*") if path.is_file()]
    return said or (f"left {left}" if left else None)


def _broken_without_home(user: str, name: str, folder: Path) -> str | None:
    """The package is one that was installed, with machine code that goes with it, of another user."""
    number, environment = USERS[user]
    prepare(name)
    packages = _installed(folder / "packages")
    here = folder / "here"
    here.mkdir()
    os.chown(here, number, number)
    capability = (
        "--inh-caps",
        "+dac_read_search",
        "--ambient-caps",
        "+dac_read_search",
    )  # may read all, as one who is given an environment
    become = (str(SETPRIV), "--reuid", str(number), "--regid", str(number), "--clear-groups", *capability)
    with tempfile.TemporaryDirectory() as temporary:  # whose way is open to this user: those of pytest are root's alone
        os.chmod(temporary, 0o777)
        return _run(name, here, *become, PYTHONPATH=str(packages), TMPDIR=temporary, **environment)


def _installed(packages: Path) -> Path:
    """This package and its data, and as machine code what this user has in the cache."""
    shutil.copytree(PACKAGE, packages / "gnnplace", ignore=shutil.ignore_patterns("__pycache__", "machine_code"))
    for data in ("checkpoints", "configs", "datasets"):
        (packages / data).symlink_to(PACKAGE.parent / data)
    for folder in (PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())):
        number = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        mine = Path(kept.folder() or os.devnull, f"{folder.name}-{number}")
        if mine.is_dir():
            shutil.copytree(mine, packages / "gnnplace" / "machine_code" / folder.relative_to(PACKAGE), dirs_exist_ok=True)
    return packages
