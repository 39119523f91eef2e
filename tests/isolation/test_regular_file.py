"""Files that are no files: nothing waits for a writer that may never come, and nothing is read without end."""

import os
import threading

import pytest

from gnnplace.formats.clusters import read_cluster
from gnnplace.formats.graphs import read_graph
from gnnplace.frontends.published.pipedream import read_pipedream
from gnnplace.isolation import regular_file
from gnnplace.isolation.regular_file import read


@pytest.fixture
def fifo(tmp_path):
    """A named pipe that nobody writes to."""
    os.mkfifo(tmp_path / "f.json")
    return str(tmp_path / "f.json")


@pytest.mark.parametrize("reader", [read_graph, read_cluster, lambda path: read_pipedream(path, name="x", mode="training")])
def test_what_is_no_regular_file_is_refused_at_once(reader, fifo):
    for path in (fifo, "/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match=rf"^{path}: is no regular file; what comes through a pipe is read as /dev/stdin or <"):
            reader(path)


def test_a_folder_and_a_missing_file_are_errors_of_the_system(tmp_path):
    for path, error in ((tmp_path, IsADirectoryError), (tmp_path / "none", FileNotFoundError)):
        with pytest.raises(error):
            read(str(path), 100)


@pytest.mark.parametrize(("length", "limit"), [(10, 10), (11, 10), (0, 10), (3_000_000, 3_000_000)])
def test_a_pipe_that_was_given_is_read_to_its_limit(length, limit):
    ours, theirs = os.pipe()

    def write() -> None:
        with open(theirs, "wb") as pipe:
            pipe.write(b"x" * length)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        if length > limit:
            with pytest.raises(ValueError, match=f"longer than the {limit} bytes"):
                read(f"/dev/fd/{ours}", limit)
        else:
            assert read(f"/dev/fd/{ours}", limit) == b"x" * length
    finally:
        writer.join()
        os.close(ours)


def test_a_stream_has_a_limit_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_file, "MOST_OF_A_STREAM", 4)
    (tmp_path / "f").write_bytes(b"12345")
    assert read(str(tmp_path / "f"), 100) == b"12345"
    ours, theirs = os.pipe()
    os.write(theirs, b"12345")
    os.close(theirs)
    with pytest.raises(ValueError, match="longer than the 4 bytes"):
        read(f"/dev/fd/{ours}", 100)
    os.close(ours)


def test_a_sparse_file_is_refused_by_its_size(tmp_path):
    with (tmp_path / "f").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match=r"longer than the \d+ bytes"):
        read_graph(tmp_path / "f")
