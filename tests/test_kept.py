"""Machine code on disk: what is damaged, foreign or of others is never read; where none can be kept, kernels work nevertheless."""

import errno
import os
import pickle
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from numba import int64
from numba.core.caching import UserProvidedCacheLocator
from numba.core.registry import cpu_target
from support import kernels

from gnnplace import kept
from gnnplace.isolation import python
from gnnplace.kept import DIGEST_BYTES, Kept


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache folder."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Kept, "failed", None)
    yield tmp_path / "cache"
    sys.modules.pop(kernels.NAME, None)


def _file(cache, name="added"):
    (found,) = cache.rglob(f"*.{name}-*")
    return found


def _loaded(kernel):
    """What is read from the disk for an integer, as a new process would."""
    return Kept(kernel.py_func, lambda _: "stamp").load_overload((int64,), cpu_target.target_context)


def _kept(kernel):
    kernel(1)
    Kept(kernel.py_func, lambda _: "stamp").save_overload((int64,), kernel.overloads[(int64,)])


class Bomb:
    """Leaves a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (str(self._path), "w")


def test_nothing_damaged_or_foreign_is_unpickled_or_given_to_llvm(cache, tmp_path):
    module = kernels.imported(tmp_path)
    module.other._cache = module.added._cache = kept.NullCache()
    _kept(module.added)
    whole = _file(cache).read_bytes()
    assert _loaded(module.added) is not None
    _kept(module.other)
    bomb = pickle.dumps(Bomb(tmp_path / "executed"))
    damaged = [b"", b"\0", whole[:DIGEST_BYTES], whole[DIGEST_BYTES:], whole[:-1], whole + b"\0", bomb, whole[:DIGEST_BYTES] + bomb]
    damaged += [kept._digest(b"", bomb) + bomb, bytes(DIGEST_BYTES) + bomb, _file(cache, "other").read_bytes(), whole.upper()]
    damaged += [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (*range(DIGEST_BYTES + 9), *range(0, len(whole), len(whole) // 40))
    ]
    for content in damaged:
        _file(cache).write_bytes(content)
        assert _loaded(module.added) is None
    assert not (tmp_path / "executed").exists()


def test_what_is_no_file_of_this_user_alone_is_not_read(cache, tmp_path):
    module = kernels.imported(tmp_path)
    module.added._cache = kept.NullCache()
    _kept(module.added)
    file, aside = _file(cache), tmp_path / "aside"
    for mode in (0o602, 0o606, 0o662):
        file.chmod(mode)
        assert _loaded(module.added) is None
    file.chmod(0o600)
    assert _loaded(module.added) is not None
    file.rename(aside)
    for make in (lambda: file.symlink_to(aside), lambda: os.mkfifo(file), file.mkdir):
        make()
        assert _loaded(module.added) is None  # nor does it wait for who writes to a pipe
        file.rmdir() if file.is_dir() else file.unlink()


@pytest.mark.parametrize("where", ["", "gnnplace", "gnnplace/*"])
def test_code_in_a_folder_that_others_may_write_is_neither_read_nor_written(cache, tmp_path, where):
    kernels.imported(tmp_path).added(1)
    written = _file(cache).stat().st_mtime_ns
    next(cache.parent.glob(f"cache/{where}")).chmod(0o777)
    again = kernels.imported(tmp_path).added
    assert again(1) == 2 and not again.stats.cache_hits and _file(cache).stat().st_mtime_ns == written
    assert kept.why_not() is None if "*" in where else kept.why_not().endswith(": other users may write there")


def test_damaged_code_is_compiled_anew_and_replaced(cache, tmp_path):
    for damage in (None, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(file.read_bytes()[:99])):
        if damage is not None:
            damage(_file(cache))
        assert kernels.imported(tmp_path).added(1) == 2
        again = kernels.imported(tmp_path).added
        assert again(1) == 2 and again.stats.cache_hits
    assert kernels.imported(tmp_path, added=5).added(1) == 6  # of another source
    assert len(list(cache.rglob("*.nbi"))) == 1


@pytest.mark.parametrize("name", ["VERSIONS", "PROCESSOR"])
def test_code_of_another_version_or_processor_is_not_read(cache, tmp_path, monkeypatch, name):
    kernels.imported(tmp_path).added(1)
    if name == "VERSIONS":
        monkeypatch.setattr(kept, name, ("0.0", *kept.VERSIONS[1:]))
    else:
        monkeypatch.setattr(type(cpu_target.target_context.codegen()), "magic_tuple", lambda self: ("other",))
    again = kernels.imported(tmp_path).added
    assert again(1) == 2 and not again.stats.cache_hits
    assert len(list(cache.rglob("*.nbi"))) == (1 if name == "VERSIONS" else 2)  # two machines may share a home


def test_code_lies_in_the_users_cache_folder_which_others_can_not_read(cache, monkeypatch, tmp_path):
    before = os.umask(0)
    try:
        kernels.imported(tmp_path).added(1)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (cache, *cache.rglob("*"))} == {0o700, 0o600}
    assert _file(cache).is_relative_to(cache / "gnnplace") and kept.why_not() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    monkeypatch.setenv("NUMBA_CACHE_DIR", "relative")
    assert kept.folder() == str(Path.home() / ".cache" / "gnnplace")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kept.folder() == str(tmp_path)


def test_code_that_was_installed_is_read_and_goes_with_its_source(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PACKAGE", tmp_path)
    monkeypatch.setattr(kept, "INSTALLED", tmp_path / "machine_code")
    monkeypatch.setattr(Kept, "installs", True)
    assert kernels.imported(tmp_path).added(1) == 2 and not cache.exists()
    monkeypatch.setattr(Kept, "installs", False)
    user = kernels.imported(tmp_path).added
    assert user(1) == 2 and user.stats.cache_hits and not cache.exists()
    changed = kernels.imported(tmp_path, added=5).added
    assert changed(1) == 6 and not changed.stats.cache_hits and _file(cache)
    _file(tmp_path / "machine_code").write_bytes(b"cut")
    again = kernels.imported(tmp_path).added
    assert again(1) == 2 and not again.stats.cache_hits


def _no_home(monkeypatch, tmp_path):
    def unknown(user):
        raise KeyError(user)

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    return "there is no home folder; XDG_CACHE_HOME may name one for caches"


def _no_space(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    return "No space left on device"


def _no_folder(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    return f"{tmp_path}/file: is no folder"


def _in_proc(monkeypatch, tmp_path):
    """Where not even root makes folders."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    return "/proc/none/gnnplace: No such file or directory"


@pytest.mark.parametrize("without", [_no_home, _no_space, _no_folder, _in_proc])
def test_where_nothing_can_be_kept_kernels_are_compiled_and_say_why(cache, tmp_path, monkeypatch, capfd, without):
    why = without(monkeypatch, tmp_path)
    for _ in range(2):
        kernel = kernels.imported(tmp_path).added
        assert kernel(1) == 2 and not kernel.stats.cache_hits
    assert kept.why_not().endswith(why) and [path for path in cache.rglob("*") if path.is_file()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_no_file_of_the_current_folder_names_what_is_read_instead(cache, tmp_path):
    """A cache of Numba's own, whose index is a pickle, where Numba would look for it."""
    kernels.imported(tmp_path)
    source = tmp_path / f"{kernels.NAME}.py"
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: evil\n")
    evil = tmp_path / "evil" / UserProvidedCacheLocator.get_suitable_cache_subpath(str(source))
    evil.mkdir(parents=True)
    line = source.read_text().partition("def added")[0].count("\n")
    (evil / f"{kernels.NAME}.added-{line}.py{sys.version_info[0]}{sys.version_info[1]}.nbi").write_bytes(
        pickle.dumps(Bomb(tmp_path / "executed"))
    )
    program = f"import {kernels.NAME} as module; assert module.added(1) == 2"
    subprocess.run(python.command("-c", program), cwd=tmp_path, env=python.environment(), check=True)
    assert not (tmp_path / "executed").exists() and _file(cache)
