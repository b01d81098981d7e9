"""The store's database file: opens, checks and migrates it, and sets it aside if it cannot be used.

Many processes use one file at once and any of them may be killed at any moment. SQLite's write-ahead log makes that
safe; a lock file beside the database covers what SQLite does not: creating it, and replacing a damaged file.
"""

import fcntl
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_BUSY_SECONDS = 10.0

SCHEMAS = (
    """
CREATE TABLE verdicts (
    id        TEXT PRIMARY KEY,
    created   REAL NOT NULL,
    verdict   TEXT NOT NULL,
    stage     TEXT NOT NULL,
    speedup   REAL,
    kernel    TEXT NOT NULL,
    baseline  TEXT NOT NULL,
    candidate TEXT NOT NULL,
    label     TEXT NOT NULL,
    device    TEXT,
    document  BLOB NOT NULL
);
CREATE INDEX verdicts_by_kernel ON verdicts (kernel, created);
CREATE INDEX verdicts_by_time ON verdicts (created);
CREATE TABLE turns (
    session   TEXT NOT NULL,
    number    INTEGER NOT NULL,
    created   REAL NOT NULL,
    candidate TEXT NOT NULL,
    prompt    TEXT,
    answer    TEXT,
    verdict   TEXT REFERENCES verdicts (id) ON DELETE SET NULL,
    PRIMARY KEY (session, number)
);
""",
    """
CREATE TABLE checks (
    key      TEXT PRIMARY KEY,
    created  REAL NOT NULL,
    document BLOB NOT NULL
);
CREATE INDEX checks_by_time ON checks (created);
""",
    """
ALTER TABLE turns ADD COLUMN target TEXT;
ALTER TABLE turns ADD COLUMN outcome TEXT;
ALTER TABLE turns ADD COLUMN circumstances TEXT;
""",
)
"""Script of each version, from version 1 on; a script never changes once it is released."""

SCHEMA_VERSION = len(SCHEMAS)
"""Current version: a newer file was written by a newer program; an older one is migrated."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class NewerSchemaError(Exception):
    """The file was written by a newer version of the tool."""


class DamagedError(sqlite3.DatabaseError):
    """A check of the whole file found damage."""


def is_damaged(error: sqlite3.Error) -> bool:
    """Return True if the file itself is damaged, and neither the disk nor the moment is at fault."""
    return isinstance(error, DamagedError) or (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def connect(path: Path, *, suspect: bool = False) -> tuple[sqlite3.Connection, str | None]:
    """Return a connection to a usable database at `path`, and a notice if a file was set aside for it.

    A damaged file, or one of a newer schema, is renamed and a new one begun. Only a `suspect` file is searched for
    damage beyond the first page, since that takes time.

    Raises:
        OSError: the folder or its lock file cannot be made.
        sqlite3.Error: the file cannot be written here.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        try:
            return _open(path, check=suspect), None
        except NewerSchemaError:
            kind, why = "newer", "was written by a newer version of kernel-lsp"
        except sqlite3.Error as error:
            if not is_damaged(error):
                raise
            kind, why = "damaged", f"is damaged ({error})"
        aside = _set_aside(path, kind)
        return _open(path), f"The store {path} {why}. It was set aside as {aside.name}, and a new one begun."


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Return the database read-only, for a disk that cannot be written to; an empty one if there is none.

    Writes of other processes that are still in the log are not seen.
    """
    if path.is_file():
        connection: sqlite3.Connection | None = None
        with suppress(sqlite3.Error):
            connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True, check_same_thread=False)
            if connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,):
                return connection
        if connection is not None:
            connection.close()
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript("".join(SCHEMAS))
    return connection


def _open(path: Path, *, check: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN IMMEDIATE")  # fails here, and not later, if nothing can be written
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise NewerSchemaError
        if check and (found := connection.execute("PRAGMA quick_check (1)").fetchone()[0]) != "ok":
            raise DamagedError(found)
        for schema in SCHEMAS[version:]:
            for statement in schema.split(";"):
                connection.execute(statement)
        if version < SCHEMA_VERSION:
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _set_aside(path: Path, kind: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}.{kind}-{stamp}{path.suffix}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.stem}.{kind}-{stamp}-{number}{path.suffix}")
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return aside


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released by the system when the process ends in any way
        yield
