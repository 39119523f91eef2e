import os
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
