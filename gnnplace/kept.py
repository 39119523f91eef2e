"""Machine code on disk: a file for each kernel and the types that it was compiled for.

A file is a digest, and then what Numba needs of a compiled kernel, pickled. The digest covers what the code was made of
as well: sources, types, processor, and the versions of Numba, LLVM and Python. So what is damaged, cut, or made of
something else has another digest; it is compiled anew, and replaced. Nothing is unpickled or given to LLVM whose digest
is not right.

Who can write a file can write a digest, too. So files are read from a folder that is this user's alone,
and from the package (`INSTALLED`), where an installation has put them (`ahead_of_time.py`) beside sources that are
executed anyway.

No cache is no fault: without a home, in one where nothing can be written, or without space on the disk, kernels are
compiled and not kept.

Whether a folder is this user's alone: nobody else but root can write in it, or put another one in its place.

Whoever may write in a folder on the way can rename what is below and put something else there. So all of the way
counts, links on it included. A sticky folder (`/tmp`) may be written by others, who can't rename what is not theirs.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pickle
import pwd
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from gnnplace import kept

ROOT = 0
MOST_LINKS = 40  # as Linux follows
ACCESS_LIST = "system.posix_acl_access"


def fault(folder: str) -> str | None:
    """Why what lies in a folder may not be this user's own, in a line; None where it is. What is not there yet is no
    fault.

    `folder` is absolute. Raises OSError where the way can't be followed.
    """
    here, rest, links = os.sep, _parts(folder), 0
    while (reason := _shared(here, last=not rest)) is None and rest:
        name = rest.pop()
        here, above = os.path.normpath(os.path.join(here, name)), here
        if name in (os.curdir, os.pardir):
            continue
        if not os.path.lexists(here):
            return None
        if os.lstat(here).st_uid not in (ROOT, os.geteuid()):
            return f"{here}: belongs to another user"
        if os.path.islink(here):
            links += 1
            if links > MOST_LINKS:
                return f"{here}: a link after {MOST_LINKS} others"
            target = os.readlink(here)
            rest += _parts(target)
            here = os.sep if os.path.isabs(target) else above
    return reason


def alone(status: os.stat_result, at: str | int) -> bool:
    """Whether nobody but its owner and root may write what has this status, which lies at a path (or a descriptor)."""
    return not status.st_mode & stat.S_IWOTH and (not status.st_mode & stat.S_IWGRP or _private(status.st_gid, at))


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [name for name in reversed(path.split(os.sep)) if name]


def _shared(folder: str, last: bool) -> str | None:
    """What is wrong with a folder on the way, or at its end, where all is this user's own."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder}: is no folder"
    if status.st_uid not in ((os.geteuid(),) if last else (ROOT, os.geteuid())):
        return f"{folder}: belongs to another user"
    if not alone(status, folder) and (last or not status.st_mode & stat.S_ISVTX):
        return f"{folder}: other users may write there"
    return None


def _private(group: int, at: str | int) -> bool:
    """Whether a group is this user's own, as many systems make one for
    each user, and no access list gives others its rights.
    """
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    try:
        listed = ACCESS_LIST in os.listxattr(at)
    except OSError:  # the file system has none
        listed = False
    personal = user.pw_gid == group and entry.gr_name == user.pw_name
    return personal and set(entry.gr_mem) <= {user.pw_name} and not listed


PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "machine_code"
DIGEST_BYTES = hashlib.sha256().digest_size
MOST_BYTES = 2**28  # of a file; ours have some hundred thousand
VERSIONS = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)


def folder() -> str | None:
    """Where this user's machine code is kept; None where there is no home.

    It is `gnnplace` in the user's cache folder, `XDG_CACHE_HOME` (XDG Base Directory), or the folder that
    `NUMBA_CACHE_DIR` names. What these name relative to the current folder is ignored, as the specification has it.
    """
    given, named = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("NUMBA_CACHE_DIR", "")
    if os.path.isabs(named):
        return named
    home = given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "gnnplace") if os.path.isabs(home) else None


def why_not() -> str | None:
    """Why what this process compiles is not kept, in a line; None where it is."""
    if (place := folder()) is None:
        return "there is no home folder; XDG_CACHE_HOME may name one for caches"
    return _fault(place) or _locked(place) or Kept.failed


class Kept(NullCache):
    """The machine code of a kernel on disk, as Numba's dispatcher asks for it.

    `stamp` is a digest of the kernel's sources.
    """

    installs: ClassVar[bool] = False  # code is kept in the package
    failed: ClassVar[str | None] = None  # why a file could not be written

    def __init__(self, function: Any, stamp: Any) -> None:
        path = Path(function.__code__.co_filename).resolve()
        self._function, self._stamp, self._home = function, stamp, path.parent
        self._name = f"{path.stem}.{function.__qualname__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str | None:
        """The folder in which this user's code of the kernel is kept."""
        number = hashlib.sha256(os.fsencode(self._home)).hexdigest()[:16]
        return None if (place := folder()) is None else os.path.join(place, f"{self._home.name}-{number}")

    @property
    def installed_path(self) -> str:
        """The folder in which an installation has put code of the
        kernel; of what is not in the package there is none.
        """
        return str(INSTALLED / self._home.relative_to(PACKAGE) if self._home.is_relative_to(PACKAGE) else INSTALLED)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature; None where there is none that is whole: then Numba compiles it.

        Numba would make its compiler ready first (`refresh`), for half a second, and import SciPy for it: this is left
        to the first kernel that has to be compiled.
        """
        rtsys.initialize(target_context)  # what allocates, which machine code calls
        made_of, name = self._made_of(sig, target_context.codegen())
        code = _whole(_read(os.path.join(self.installed_path, name)), made_of) or _whole(
            _own(self.cache_path, name), made_of
        )
        return None if code is None else CompileResult._rebuild(target_context, *pickle.loads(code))

    def save_overload(self, sig: Any, result: Any) -> None:
        """Keeps code that was compiled, where that is possible.

        Raises OSError if it is to be kept in the package and can't.
        """
        if result.library.has_dynamic_globals:
            return
        made_of, name = self._made_of(sig, result.codegen)
        if Kept.installs:
            os.makedirs(self.installed_path, exist_ok=True)
            Path(self.installed_path, name).write_bytes(_whole_file(made_of, result))
        elif (place := self.cache_path) is not None:
            try:
                _make_folders(place)
                if _fault(place) is None:
                    _write(os.path.join(place, name), _whole_file(made_of, result))
            except OSError as error:
                Kept.failed = f"{folder()}: {error.strerror}"

    def _made_of(self, sig: Any, codegen: Any) -> tuple[bytes, str]:
        """What the code for a signature is made of, and the name of its file, which is the same for other sources."""
        called = repr((*map(_described, sig), codegen.magic_tuple()))
        number = hashlib.sha256(called.encode()).hexdigest()[:16]
        made_of = repr((VERSIONS, self._name, self._stamp(self._function), called))
        return made_of.encode(), f"{self._name}-{number}.{VERSIONS[-1]}.nbi"


def named_tuple(kind: Any) -> str:
    """A class of named tuples as code depends on it: machine code knows fields by their places."""
    return f"{kind.__module__}.{kind.__qualname__}{kind._fields}"


def _described(argument: Any) -> str:
    """A type of Numba's in full, with the fields of named tuples, which its own name leaves out."""
    if not hasattr(argument, "types"):  # no tuple
        return str(argument)
    of = named_tuple(argument.instance_class) if hasattr(argument, "instance_class") else ""
    return f"{of}({', '.join(map(_described, argument.types))})"


def _own(place: str | None, name: str) -> bytes | None:
    """What a file holds that is this user's alone, as its folder is."""
    if place is None or Kept.installs or _fault(place) is not None:
        return None
    return _read(os.path.join(place, name), private=True)


def _fault(place: str) -> str | None:
    try:
        return kept.fault(place)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def _locked(place: str) -> str | None:
    """What keeps this process from making a folder, or from writing in it."""
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place}: nothing can be written there"


def _read(path: str, private: bool = False) -> bytes | None:
    """What a regular file holds, None where there is none, or (`private`) one that others may write."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            mine = status.st_uid == os.geteuid() and kept.alone(status, file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES or (private and not mine):
                return None
            return file.read()
    except OSError:
        return None


def _whole(content: bytes | None, made_of: bytes) -> bytes | None:
    """The code in a file, None unless it is as it was written, and made of that."""
    if content is None or content[:DIGEST_BYTES] != _digest(made_of, memoryview(content)[DIGEST_BYTES:]):
        return None
    return content[DIGEST_BYTES:]


def _whole_file(made_of: bytes, result: CompileResult) -> bytes:
    code = dumps(result._reduce())
    return _digest(made_of, code) + code


def _digest(made_of: bytes, code: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(len(made_of).to_bytes(8) + made_of)
    digest.update(code)
    return digest.digest()


def _make_folders(place: str) -> None:
    """Makes a folder, and those above it that are missing, for this user alone."""
    if not os.path.isdir(place):
        _make_folders(os.path.dirname(place))
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)


def _write(path: str, content: bytes) -> None:
    """Writes a file whole, or raises OSError and leaves none."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
