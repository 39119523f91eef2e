"""The temporary folder of a process: libraries use it, it goes with the process, and a killed one's is removed by the next."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

from gnnplace.isolation.scratch import own_temporary_folder


@pytest.fixture
def system(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_is_left_in_it_goes_with_it(system, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "theirs")
    with own_temporary_folder():
        own = Path(tempfile.gettempdir())
        assert own.parent == system and os.environ["TMPDIR"] == str(own) and own.stat().st_mode & 0o77 == 0
        Path(tempfile.mkdtemp(), "left").touch()
    assert os.listdir(system) == [] and tempfile.gettempdir() == os.environ["TMPDIR"] == str(system)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "theirs"


def test_where_pytorch_began_to_write_is_forgotten(system, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with own_temporary_folder():
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        assert Path(cache_dir()).is_relative_to(tempfile.gettempdir())
    assert os.listdir(system) == [] and "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_a_killed_process_leaves_it_to_the_next_and_one_that_runs_keeps_it(system):
    def child() -> int:
        ready, at_work = os.pipe()
        pid = os.fork()
        if pid == 0:
            with own_temporary_folder():
                Path(tempfile.gettempdir(), "left").touch()
                os.write(at_work, b".")
                signal.pause()
        os.read(ready, 1)
        return pid

    pids = [child(), child()]
    assert len(os.listdir(system)) == 2
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)
    with own_temporary_folder():
        assert len(os.listdir(system)) == 2  # its own and that of the other
    os.kill(pids[1], signal.SIGKILL)
    os.waitpid(pids[1], 0)
    with own_temporary_folder():
        assert len(os.listdir(system)) == 1


def test_what_is_not_a_folder_of_ours_stays(system):
    (system / "gnnplace-file").touch()
    (system / "elsewhere").mkdir()
    (system / "gnnplace-link").symlink_to("elsewhere")
    with own_temporary_folder():
        pass
    assert sorted(os.listdir(system)) == ["elsewhere", "gnnplace-file", "gnnplace-link"]


def test_where_none_can_be_made_the_work_is_done(monkeypatch):
    def full(*names, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    done = []
    with own_temporary_folder():
        done.append(True)
    assert done
