"""MLflow's store of a folder of runs: `mlflow.db` (SQLite), with artifacts beside it. It is whole, or it is not there.

MLflow makes a store by hundreds of statements on the file; a process that ends meanwhile leaves a part that MLflow
never takes again. Here the statements run in memory, and the file is written at once, by one process at a time. What is
no such store is named, never changed.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gnnplace.formats import atomic
from gnnplace.isolation.under_way import locked

EXPERIMENT = "gnnplace"
DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
KIND_TAG = "mlflow.experimentKind"  # of an experiment: the first page that MLflow shows, here the runs
KIND = "custom_model_development"
IN_MEMORY = "sqlite:///:memory:"
TABLES = frozenset({"alembic_version", "experiments", "runs", "metrics", "params", "tags"})
DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
CURE = "move it away, and the next training makes a new one, or say --tracking none"


def database(runs: Path) -> str:
    """The tracking address of a folder of runs, for `mlflow ui --backend-store-uri`."""
    return f"sqlite:///{(runs / DATABASE).resolve()}"


def check(runs: Path) -> None:
    """Raises OSError (one line, with the cure) if a folder's store can't be used; one that doesn't exist can."""
    path = runs / DATABASE
    if not _has_address(runs.resolve()):
        raise OSError(
            errno.EINVAL, "MLflow has no address for such a name; say other --runs, or --tracking none", str(path)
        )
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise OSError(errno.EINVAL, f"is no file, and MLflow keeps its runs there: {CURE}", str(path))
    with in_one_line(runs), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as store:
        if (fault := _fault(store, path)) is not None:
            raise OSError(errno.EINVAL, fault, str(path))


def opened(runs: Path) -> Any:
    """A client of the store of a folder of runs, which is made if it doesn't exist. Raises OSError (one line)."""
    check(runs)
    if not (runs / DATABASE).exists():
        with locked(runs / f"{DATABASE}.lock"):
            if not (runs / DATABASE).exists():  # another process may have made it meanwhile
                atomic.write_bytes(runs / DATABASE, _new(runs))
    return _mlflow().MlflowClient(tracking_uri=database(runs))


def experiment(client: Any, runs: Path) -> str:
    """The experiment of all runs; it is created in a store that lacks it."""
    existing = client.get_experiment_by_name(EXPERIMENT)
    return str(
        existing.experiment_id
        if existing is not None
        else client.create_experiment(EXPERIMENT, _artifacts(runs), {KIND_TAG: KIND})
    )


def local(address: str) -> Path | None:
    """The folder of an address of artifacts; None where they are elsewhere, in a store that somebody else made."""
    parts = urlsplit(address)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def in_one_line(runs: Path) -> Iterator[None]:
    """Turns errors in MLflow's store into an OSError of a file, with the cure if the database is damaged."""
    _mlflow()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (sqlite3.Error, MlflowException, SQLAlchemyError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        message = next((line for line in lines if line.startswith("(sqlite3.")), lines[0])
        cure = f": {CURE}" if _sqlite_code(error) in DAMAGED else ""
        raise OSError(errno.EIO, f"MLflow: {message}{cure}", str(runs / DATABASE)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), error.filename or str(runs / ARTIFACTS)) from error


def _sqlite_code(error: BaseException | None) -> int:
    """SQLite's code of an error that it, SQLAlchemy or MLflow raised."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = getattr(error, "orig", None) or error.__cause__
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extended code


def _has_address(path: Path) -> bool:
    """Whether MLflow finds a path by its address.

    `?` and `#` end an address, and `%41` is read as A, twice where it names artifacts.
    """
    return not set("?#") & set(str(path)) and unquote(unquote(path.as_uri())) == f"file://{path}"


def _fault(store: sqlite3.Connection, path: Path) -> str | None:
    """The reason why MLflow can't use a store, with the cure; None if it can."""
    tables = {name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (pages,), (size,) = store.execute("PRAGMA page_count").fetchone(), store.execute("PRAGMA page_size").fetchone()
    if tables and path.stat().st_size < pages * size:
        return f"MLflow's store is cut: {CURE}"
    whole = tables >= TABLES and store.execute("SELECT count(*) FROM experiments").fetchone()[0]
    version = store.execute("SELECT version_num FROM alembic_version").fetchone() if whole else None
    if version is None:
        return f"MLflow's store is half-made: {CURE}"
    versions = _versions()
    if version[0] == versions[0]:
        return None
    upgrade = (
        f"run `mlflow db upgrade {database(path.parent)}` with a copy at hand"
        if version[0] in versions
        else "install a newer MLflow"
    )
    return f"MLflow's store is of another version of it ({version[0]}, not {versions[0]}): {upgrade}, or {CURE}"


def _versions() -> list[str]:
    """All versions of MLflow's tables, the newest first."""
    from alembic.script import ScriptDirectory

    migrations = Path(_mlflow().__file__).parent / "store" / "db_migrations"
    return [script.revision for script in ScriptDirectory(str(migrations)).walk_revisions()]


def _new(runs: Path) -> bytes:
    """A store with the experiment of all runs and nothing in it."""
    _mlflow()
    from mlflow.entities import ExperimentTag
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(IN_MEMORY, _artifacts(runs))
    try:
        store.create_experiment(EXPERIMENT, _artifacts(runs), [ExperimentTag(KIND_TAG, KIND)])
        connection: Any = store.engine.raw_connection().driver_connection
        return bytes(connection.serialize())
    finally:
        store.engine.dispose()  # MLflow keeps it for the next store at this address


def _artifacts(runs: Path) -> str:
    return (runs / ARTIFACTS).resolve().as_uri()


def _mlflow() -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    import mlflow

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises the same
    return mlflow
