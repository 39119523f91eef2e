"""Stores of MLflow that it can't go on with: half-made as by a version that made them in place, cut, changed, of another version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Engine, event

from gnnplace.training.run import mlflow_store

NEWER, OLDER = "ffffffffffff", "451aebb31d03"


class Ended(BaseException):
    """A process that makes a store ends."""


@contextmanager
def at_statement(at: int, then: Callable[[], None] = lambda: None) -> Iterator[list[int]]:
    """Counts the statements that databases get in the context, and calls `then` before one of them (from 1; 0: none)."""
    count = [0]

    def counted(*_: object) -> None:
        count[0] += 1
        if count[0] == at:
            then()

    event.listen(Engine, "before_cursor_execute", counted)
    try:
        yield count
    finally:
        event.remove(Engine, "before_cursor_execute", counted)


def whole(folder: Path) -> bytes:
    """A new store of a folder of runs."""
    return mlflow_store._new(folder)


def half_made(path: Path, at: int) -> None:
    """What MLflow leaves where the process that makes a store, in place, ends before one of its statements."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    def end() -> None:
        raise Ended

    with at_statement(at, end):
        try:
            SqlAlchemyStore(f"sqlite:///{path}", "artifacts")
        except Ended:
            pass
        else:
            raise AssertionError(f"a store takes fewer than {at} statements")
    SqlAlchemyStore._engine_map.pop(f"sqlite:///{path}").dispose()


def _changed(statement: str) -> Callable[[Path, bytes], None]:
    def change(path: Path, store: bytes) -> None:
        path.write_bytes(store)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return change


def _cut(share: float) -> Callable[[Path, bytes], None]:
    return lambda path, store: path.write_bytes(store[: int(share * len(store))]) and None


DAMAGED: Mapping[str, tuple[Callable[[Path, bytes], object], str]] = {
    "empty": (lambda path, store: path.touch(), "MLflow's store is half-made"),
    "no database": (lambda path, store: path.write_text("a note\n" * 200), "file is not a database"),
    "a cut header": (lambda path, store: path.write_bytes(store[:50]), "database"),
    "an overwritten header": (lambda path, store: path.write_bytes(bytes(100) + store[100:]), "file is not a database"),
    "one byte less": (lambda path, store: path.write_bytes(store[:-1]), "MLflow's store is cut"),
    **{f"cut after {share:.0%}": (_cut(share), "database disk image is malformed") for share in (0.05, 0.25, 0.5, 0.75, 0.95)},
    "pages of zeros": (lambda path, store: path.write_bytes(store[:4096] + bytes(2**18) + store[4096 + 2**18 :]), "is malformed"),
    "no version": (_changed("DELETE FROM alembic_version"), "MLflow's store is half-made"),
    "no experiments": (_changed("DELETE FROM experiments"), "MLflow's store is half-made"),
    "no runs": (_changed("DROP TABLE runs"), "MLflow's store is half-made"),
    "an older version": (_changed(f"UPDATE alembic_version SET version_num = '{OLDER}'"), "run `mlflow db upgrade sqlite:///"),
    "a newer version": (_changed(f"UPDATE alembic_version SET version_num = '{NEWER}'"), "install a newer MLflow"),
    "a folder": (lambda path, store: path.mkdir(), "is no file"),
    "a link to nothing": (lambda path, store: path.symlink_to("nowhere"), "is no file"),
    "a pipe": (lambda path, store: os.mkfifo(path), "is no file"),
}  # fmt: skip
