import os

import pytest

from gnnplace.formats import atomic


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
