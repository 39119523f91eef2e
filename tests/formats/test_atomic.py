import os
import signal
import stat
import subprocess

import pytest

from gnnplace.formats import atomic
from gnnplace.isolation import python


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "a.txt"
    atomic.write_text(path, "old")
    atomic.write_text(path, "néw")
    assert path.read_bytes() == "néw".encode() and os.listdir(tmp_path) == ["a.txt"]


def test_what_fails_leaves_the_old_content_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    atomic.write_text(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.txt'"):
        atomic.write_text(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_missing_folder_is_named_as_the_user_named_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'.*/none/a\.txt'"):
        atomic.write_bytes(tmp_path / "none" / "a.txt", b"")


def test_a_link_is_followed_and_stays(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    atomic.write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new" and sorted(os.listdir(tmp_path)) == ["link.txt", "target.txt"]


def test_what_is_no_regular_file_is_written_to_and_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic.write_text(pipe, "through")
    assert os.read(reader, 100) == b"through" and stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
    atomic.write_text("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_standard_output_is_written_to_whatever_it_is(tmp_path):
    program = "from gnnplace.formats import atomic; print('first', flush=True); atomic.write_text('/dev/stdout', 'second')"
    with (tmp_path / "out.txt").open("w") as out:
        subprocess.run(python.command("-c", program), stdout=out, check=True, env=python.environment())
    assert (tmp_path / "out.txt").read_text() == "first\nsecond" and os.path.islink("/dev/stdout")


def test_a_file_keeps_its_mode_and_a_new_one_gets_that_of_the_umask(tmp_path):
    path, new = tmp_path / "secret.txt", tmp_path / "new.txt"
    path.write_text("old")
    path.chmod(0o600)
    before = os.umask(0o027)
    try:
        atomic.write_text(path, "new")
        atomic.write_text(new, "new")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, new)] == [0o600, 0o640]


def killed(write, *arguments):
    """Has a process killed that has written, before it flushes."""
    if (pid := os.fork()) == 0:
        os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        try:
            write(*arguments)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("name", ["a.txt", "a" * 255, "é" * 127])
def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path, name):
    path, other = tmp_path / name, tmp_path / f".{name[:100]}.other.tmp"
    other.write_text("not ours")
    killed(atomic.write_text, path, "half")
    assert len(os.listdir(tmp_path)) == 2 and not path.exists()
    atomic.write_text(path, "whole")
    assert path.read_text() == "whole" and set(os.listdir(tmp_path)) == {name, other.name}


def test_a_folder_that_a_killed_writer_left_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "folder"
    killed(atomic.write_folder, path, {"a": "half", "b": "nothing"})
    assert len(os.listdir(tmp_path)) == 1 and not path.exists()
    atomic.write_folder(path, {"a": "whole", "b": "whole"})
    assert os.listdir(tmp_path) == ["folder"] and sorted(os.listdir(path)) == ["a", "b"]


def test_what_another_writer_is_at_stays(tmp_path, monkeypatch):
    path, flush = tmp_path / "a.txt", os.fsync

    def another_writes_meanwhile(descriptor):
        monkeypatch.setattr(os, "fsync", flush)
        atomic.write_text(path, "first")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", another_writes_meanwhile)
    atomic.write_text(path, "last")
    assert path.read_text() == "last" and os.listdir(tmp_path) == ["a.txt"]


def test_the_name_in_its_folder_is_flushed_after_the_content(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    atomic.write_text(tmp_path / "a.txt", "new")
    assert len(flushed) == 2 and flushed[0].endswith(".tmp") and flushed[1] == str(tmp_path)


def test_a_device_that_is_full_is_named():
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        atomic.write_text("/dev/full", "more")
