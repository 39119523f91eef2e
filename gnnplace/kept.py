"""Machine code on disk: one file for each kernel and each tuple of types that it was compiled for.

A file holds a digest and then the pickled result of Numba's compilation. The digest also covers everything the code
depends on: sources, types, processor, and the versions of Numba, LLVM and Python. Code that is damaged, cut short or
made from other sources has another digest; it is compiled anew and replaced. Only code with the right digest is
unpickled or given to LLVM.

Whoever can write a file can also write its digest. So files are read from two places only: a folder that only this
user (and root) can write to, and the package itself (`INSTALLED`), where an installation puts them
(`ahead_of_time.py`) beside sources that are executed anyway.

A missing cache is no error: without a home folder, without write permission or with a full disk, kernels are compiled
and not kept.

A folder is this user's alone (`fault`) if nobody else but root can write to it or put another folder in its place.
Whoever can write to a folder on the path can rename what is below, so every folder on the path counts, and every link.
Others may write to a sticky folder (`/tmp`) on the path, since they can't rename what belongs to somebody else.
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

PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "machine_code"
DIGEST_BYTES = hashlib.sha256().digest_size
MOST_BYTES = 2**28  # of a file; the largest of ours has a few hundred thousand
VERSIONS = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
ROOT = 0
MOST_LINKS = 40  # Linux follows no more
ACCESS_LIST = "system.posix_acl_access"


def folder() -> str | None:
    """The folder of this user's machine code; None without a home folder.

    It is `NUMBA_CACHE_DIR`, or else `gnnplace` in the user's cache folder, `XDG_CACHE_HOME` (XDG Base Directory
    Specification). Relative paths in these variables are ignored, as that specification demands.
    """
    numba_dir = os.environ.get("NUMBA_CACHE_DIR", "")
    if os.path.isabs(numba_dir):
        return numba_dir
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache_home):
        cache_home = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache_home, "gnnplace") if os.path.isabs(cache_home) else None


def why_not() -> str | None:
    """The reason, in one line, why machine code compiled by this process is not kept; None if it is kept."""
    if (place := folder()) is None:
        return "there is no home folder; XDG_CACHE_HOME may name one for caches"
    return _fault(place) or _locked(place) or Kept.failed


class Kept(NullCache):
    """The cache of one kernel on disk, with the interface that Numba's dispatcher calls.

    `stamp(function)` is a digest of the kernel's sources.
    """

    installs: ClassVar[bool] = False  # True: an installation is under way, and code goes into the package
    failed: ClassVar[str | None] = None  # why the last file could not be written

    def __init__(self, function: Any, stamp: Any) -> None:
        path = Path(function.__code__.co_filename).resolve()
        self._function, self._stamp, self._home = function, stamp, path.parent
        self._name = f"{path.stem}.{function.__qualname__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str | None:
        """The folder of this user's code for the kernel."""
        number = hashlib.sha256(os.fsencode(self._home)).hexdigest()[:16]
        return None if (place := folder()) is None else os.path.join(place, f"{self._home.name}-{number}")

    @property
    def installed_path(self) -> str:
        """The folder of the code that an installation compiled; kernels outside the package have no code there."""
        return str(INSTALLED / self._home.relative_to(PACKAGE) if self._home.is_relative_to(PACKAGE) else INSTALLED)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None if no intact file has it; Numba then compiles the kernel.

        Numba's own cache would first prepare the compiler (`refresh`) and import SciPy, which takes half a second. Here
        the first kernel that has to be compiled does so.
        """
        rtsys.initialize(target_context)  # the allocator, which machine code calls
        origin, name = self._origin(sig, target_context.codegen())
        installed = _code(_read(os.path.join(self.installed_path, name)), origin)
        code = installed or _code(_read_private(self.cache_path, name), origin)
        return None if code is None else CompileResult._rebuild(target_context, *pickle.loads(code))

    def save_overload(self, sig: Any, result: Any) -> None:
        """Writes compiled code to disk if possible.

        Raises OSError only during an installation, whose code has to reach the package.
        """
        if result.library.has_dynamic_globals:
            return
        origin, name = self._origin(sig, result.codegen)
        if Kept.installs:
            os.makedirs(self.installed_path, exist_ok=True)
            Path(self.installed_path, name).write_bytes(_content(origin, result))
        elif (place := self.cache_path) is not None:
            try:
                _make_folders(place)
                if _fault(place) is None:
                    _write(os.path.join(place, name), _content(origin, result))
            except OSError as error:
                Kept.failed = f"{folder()}: {error.strerror}"

    def _origin(self, sig: Any, codegen: Any) -> tuple[bytes, str]:
        """Everything that the code for a signature depends on, and the name of its file.

        The name does not depend on the sources, so that code of changed sources replaces the old file.
        """
        signature = repr((*map(_described, sig), codegen.magic_tuple()))
        number = hashlib.sha256(signature.encode()).hexdigest()[:16]
        origin = repr((VERSIONS, self._name, self._stamp(self._function), signature))
        return origin.encode(), f"{self._name}-{number}.{VERSIONS[-1]}.nbi"


def named_tuple(kind: Any) -> str:
    """The class of a named tuple with the order of its fields: machine code addresses fields by position."""
    return f"{kind.__module__}.{kind.__qualname__}{kind._fields}"


def _described(argument: Any) -> str:
    """A Numba type in full, including the fields of named tuples, which Numba's own name leaves out."""
    if not hasattr(argument, "types"):  # not a tuple
        return str(argument)
    name = named_tuple(argument.instance_class) if hasattr(argument, "instance_class") else ""
    return f"{name}({', '.join(map(_described, argument.types))})"


def _read_private(place: str | None, name: str) -> bytes | None:
    """The content of a file, if file and folder are this user's alone."""
    if place is None or Kept.installs or _fault(place) is not None:
        return None
    return _read(os.path.join(place, name), private=True)


def _fault(place: str) -> str | None:
    """As `fault`, with an OSError as its reason."""
    try:
        return fault(place)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


def _locked(place: str) -> str | None:
    """Why this process can't make a folder or write to it; None if it can."""
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place}: nothing can be written there"


def _read(path: str, private: bool = False) -> bytes | None:
    """The content of a regular file; None if there is none or if (`private`) others may write to it."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            is_private = status.st_uid == os.geteuid() and alone(status, file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES or (private and not is_private):
                return None
            return file.read()
    except OSError:
        return None


def _code(content: bytes | None, origin: bytes) -> bytes | None:
    """The code in the content of a file; None unless it is intact and has this origin."""
    if content is None or content[:DIGEST_BYTES] != _digest(origin, memoryview(content)[DIGEST_BYTES:]):
        return None
    return content[DIGEST_BYTES:]


def _content(origin: bytes, result: CompileResult) -> bytes:
    """The content of a file: digest and code."""
    code = dumps(result._reduce())
    return _digest(origin, code) + code


def _digest(origin: bytes, code: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(len(origin).to_bytes(8) + origin)
    digest.update(code)
    return digest.digest()


def _make_folders(place: str) -> None:
    """Makes a folder and its missing parents, readable for this user alone."""
    if not os.path.isdir(place):
        _make_folders(os.path.dirname(place))
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)


def _write(path: str, content: bytes) -> None:
    """Writes a complete file, or raises OSError and leaves none."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".tmp")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def fault(folder: str) -> str | None:
    """The reason, in one line, why a folder is not this user's alone; None if it is or does not exist yet.

    `folder` is absolute. Raises OSError if the path can't be followed.
    """
    path, rest, links = os.sep, _parts(folder), 0
    while (reason := _shared(path, last=not rest)) is None and rest:
        name = rest.pop()
        path, parent = os.path.normpath(os.path.join(path, name)), path
        if name in (os.curdir, os.pardir):
            continue
        if not os.path.lexists(path):
            return None
        if os.lstat(path).st_uid not in (ROOT, os.geteuid()):
            return f"{path}: belongs to another user"
        if os.path.islink(path):
            links += 1
            if links > MOST_LINKS:
                return f"{path}: a link after {MOST_LINKS} others"
            target = os.readlink(path)
            rest += _parts(target)
            path = os.sep if os.path.isabs(target) else parent
    return reason


def alone(status: os.stat_result, at: str | int) -> bool:
    """Whether only the owner and root may write to the file with this status at a path (or descriptor)."""
    return not status.st_mode & stat.S_IWOTH and (not status.st_mode & stat.S_IWGRP or _private(status.st_gid, at))


def _parts(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [name for name in reversed(path.split(os.sep)) if name]


def _shared(folder: str, last: bool) -> str | None:
    """Why others can replace a folder on the path or, at its end (`last`), write to it; None if they can't."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder}: is no folder"
    if status.st_uid not in ((os.geteuid(),) if last else (ROOT, os.geteuid())):
        return f"{folder}: belongs to another user"
    if not alone(status, folder) and (last or not status.st_mode & stat.S_ISVTX):
        return f"{folder}: other users may write there"
    return None


def _private(group: int, at: str | int) -> bool:
    """Whether a group has this user alone, as on many systems, and no access list gives others its rights."""
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
