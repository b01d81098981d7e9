"""The store of results by content address: verdicts with their evidence, trajectories, and results of checks.

It holds JSON documents and a few columns to find them by, and knows nothing of their meaning beyond the names of those
columns.
"""

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.store.database import connect, connect_for_reading, is_damaged

Document = dict[str, object]
_T = TypeVar("_T")

_CHECKS_KEPT = 5000

SHORTEST_ID = 8
"""Shortest prefix of an id that is shown, so that a short id seldom has to grow."""


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One verdict in a list, without its evidence. `created` is in seconds since 1970."""

    id: str
    created: float
    verdict: str
    stage: str
    speedup: float | None
    kernel: str
    baseline: str
    candidate: str
    label: str
    device: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of a search.

    Attributes:
        session: the refinement it belongs to.
        number: its place, from 1.
        created: seconds since 1970.
        candidate: digest of the candidate.
        prompt: the prompt of a model; None without one.
        answer: its answer.
        verdict: id of the verdict on the candidate, None without one.
        target: digest of the kernel that the search is for; None where an older version recorded the turn, as below.
        outcome: what became of the candidate.
        circumstances: what it was asked and tried with, such as the model and the GPU.
    """

    session: str
    number: int
    created: float
    candidate: str
    prompt: str | None
    answer: str | None
    verdict: str | None
    target: str | None = None
    outcome: Document | None = None
    circumstances: Document | None = None


class Store:
    """An open store; safe for many threads and processes. Use `open_store`.

    A store never stops the work it serves: when nothing can be saved (a full or read-only disk), it says so once in
    `notices` and reading goes on. If there was no file to read, results are kept in memory until the store is closed.

    Attributes:
        path: the database.
        lasting: True if results outlive the process; False if the disk refused when the store was opened.
        notices: sentences for the user about what happened to the store, oldest first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lasting = True
        self.notices: list[str] = []
        self._lock = threading.RLock()
        self._connection = self._connect()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Verdicts

    def save_verdict(self, document: Mapping[str, object]) -> None:
        """Save a verdict under its `id`, replacing an older one with the same id.

        Args:
            document: the verdict as JSON values. Columns are read from `id`, `verdict`, `stage`, `speedup` and, in
                `evidence`, `kernel_path`, `baseline_digest`, `candidate_digest`, `candidate_label` and the name of
                the `device`.
        """
        evidence = cast(Document, document["evidence"])
        device = cast("Document | None", evidence["device"])
        row = (
            document["id"],
            time.time(),
            document["verdict"],
            document["stage"],
            document["speedup"],
            evidence["kernel_path"],
            evidence["baseline_digest"],
            evidence["candidate_digest"],
            evidence["candidate_label"],
            device["name"] if device else None,
            _pack(document),
        )
        # An upsert and not REPLACE, which would delete the row first and so clear the turns that refer to it.
        columns = [*_VERDICT_COLUMNS, "document"]
        updates = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
        self._write(
            f"INSERT INTO verdicts ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT (id) DO UPDATE SET {updates}",
            row,
        )

    def find_verdict(self, verdict_id: str) -> Document | None:
        """Return the verdict with exactly this id; None if there is none."""
        return self._document("SELECT document FROM verdicts WHERE id = ?", verdict_id)

    def resolve(self, prefix: str) -> str:
        """Return the id that begins with `prefix`.

        Raises:
            ConfigurationError: no id does, or several do.
        """
        prefix = prefix.lower()
        ids = self._read("SELECT id FROM verdicts WHERE substr(id, 1, ?) = ? LIMIT 2", (len(prefix), prefix))
        if len(ids) == 1:
            return str(ids[0][0])
        if ids:
            raise ConfigurationError(f"Several verdicts begin with `{prefix}`.", fix="Give more of the id.")
        known = ", ".join(self.short_id(row.id) for row in self.list_verdicts(limit=3))
        fix = f"The latest ones are: {known}." if known else "None was recorded yet: run `kernel-lsp judge` first."
        raise ConfigurationError(f"No verdict begins with `{prefix}`.", fix=fix)

    def short_id(self, verdict_id: str) -> str:
        """Return the shortest unique prefix of an id, at least `SHORTEST_ID` characters."""
        length = SHORTEST_ID
        start = verdict_id[:length]
        query = "SELECT id FROM verdicts WHERE substr(id, 1, ?) = ? AND id <> ?"
        others: list[str] = [other for (other,) in self._read(query, (length, start, verdict_id))]
        while length < len(verdict_id) and any(other.startswith(verdict_id[:length]) for other in others):
            length += 1
        return verdict_id[:length]

    def list_verdicts(self, kernel: str | None = None, limit: int = 20) -> list[VerdictRow]:
        """Return the latest verdicts, newest first; only those of one kernel file if `kernel` is given."""
        return self._rows(*(("WHERE kernel = ?", (kernel,)) if kernel else ("", ())), limit)

    def find_verdicts(self, kernel: str, baseline: str, limit: int = 200) -> list[VerdictRow]:
        """Return the latest verdicts on a kernel file, newest first, found by its path or by the digest of its text."""
        return self._rows("WHERE kernel = ? OR baseline = ?", (kernel, baseline), limit)

    def newest_judgement(self, verdict_id: str) -> VerdictRow | None:
        """Return the latest verdict on the two texts that a verdict compares; None if there is none of this id."""
        texts = "SELECT baseline, candidate FROM verdicts WHERE id = ?"
        rows = self._rows(f"WHERE (baseline, candidate) = ({texts})", (verdict_id,), 1)
        return rows[0] if rows else None

    def changes(self) -> int:
        """Return a number that differs whenever the store may have changed."""
        seen = self._read("PRAGMA data_version", ())  # counts writes of other connections
        return hash((seen[0][0] if seen else 0, self._connection.total_changes))

    # Trajectories

    def append_turn(
        self,
        session: str,
        candidate: str,
        *,
        prompt: str | None = None,
        answer: str | None = None,
        verdict: str | None = None,
        number: int | None = None,
        target: str | None = None,
        outcome: Mapping[str, object] | None = None,
        circumstances: Mapping[str, object] | None = None,
    ) -> None:
        """Add a turn of a search; for the arguments see `Turn`.

        Turns are numbered in the order of the calls, across processes. With a `number`, the turn replaces the one
        there, so that repeated work ends in the same turns, and an answer can be kept before its outcome is known.
        """
        # The verdict is looked up because its file may have been set aside since.
        self._write(
            f"INSERT OR REPLACE INTO turns ({_TURN}) "
            "SELECT :session, coalesce(:number, max(number) + 1, 1), :created, :candidate, :prompt, :answer, "
            "(SELECT id FROM verdicts WHERE id = :verdict), :target, :outcome, :circumstances "
            "FROM turns WHERE session = :session",
            {
                "session": session,
                "number": number,
                "created": time.time(),
                "candidate": candidate,
                "prompt": prompt,
                "answer": answer,
                "verdict": verdict,
                "target": target,
                "outcome": _as_text(outcome),
                "circumstances": _as_text(circumstances),
            },
        )

    def list_turns(self, session: str) -> list[Turn]:
        """Return the turns of one search, in order."""
        rows = self._read(f"SELECT {_TURN} FROM turns WHERE session = ? ORDER BY number", (session,))
        return [Turn(*row[:-2], *(json.loads(text) if text else None for text in row[-2:])) for row in rows]

    def find_turns(self, verdict_id: str) -> list[Turn]:
        """Return the turns of the latest search that reached a verdict, in order; empty if none did."""
        query = "SELECT session FROM turns WHERE verdict = ? ORDER BY created DESC LIMIT 1"
        return [turn for (session,) in self._read(query, (verdict_id,)) for turn in self.list_turns(session)]

    def list_sessions(self, limit: int = 20) -> list[str]:
        """Return the ids of searches with turns, latest first; all of them if `limit` is -1."""
        rows = self._read("SELECT session FROM turns GROUP BY session ORDER BY max(created) DESC LIMIT ?", (limit,))
        return [str(session) for (session,) in rows]

    # Results of checks

    def save_check(self, key: str, document: Mapping[str, object]) -> None:
        """Save the result of checking a file under the hash of its inputs; beyond a limit the oldest are dropped."""
        self._put("checks", key, document)
        self._write(
            "DELETE FROM checks WHERE key IN (SELECT key FROM checks ORDER BY created DESC LIMIT -1 OFFSET ?)",
            (_CHECKS_KEPT,),
        )

    def find_check(self, key: str) -> Document | None:
        """Return the result of checking a file; None if there is none."""
        return self._document("SELECT document FROM checks WHERE key = ?", key)

    # Access to the database for all of the above

    def _put(self, table: str, key: str, document: Mapping[str, object]) -> None:
        self._write(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", (key, time.time(), _pack(document)))

    def _rows(self, where: str, given: tuple[object, ...], limit: int) -> list[VerdictRow]:
        names = ", ".join(_VERDICT_COLUMNS)
        rows = self._read(
            f"SELECT {names} FROM verdicts {where} ORDER BY created DESC, rowid DESC LIMIT ?", (*given, limit)
        )
        return [VerdictRow(*row) for row in rows]

    def _document(self, query: str, key: str) -> Document | None:
        rows = self._read(query, (key,))
        return _unpack(rows[0][0]) if rows else None

    def _read(self, query: str, given: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return self._run(lambda: self._connection.execute(query, given).fetchall(), [])

    def _write(self, statement: str, given: tuple[object, ...] | Mapping[str, object]) -> None:
        self._run(lambda: self._connection.execute(statement, given), None)

    def _run(self, operation: Callable[[], _T], otherwise: _T) -> _T:
        """Run the operation, again on a new file if this one is damaged; return `otherwise` if the disk refuses."""
        with self._lock:
            try:
                return operation()
            except sqlite3.ProgrammingError:
                raise
            except sqlite3.DatabaseError as error:
                if not is_damaged(error):
                    self._give_up(error)
                    return otherwise
            self._connection.close()
            self._connection = self._connect(suspect=True)
            try:
                return operation()
            except sqlite3.DatabaseError as error:
                self._give_up(error)
                return otherwise

    def _connect(self, *, suspect: bool = False) -> sqlite3.Connection:
        try:
            connection, notice = connect(self.path, suspect=suspect)
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)
            self.lasting = False
            return connect_for_reading(self.path)
        if notice:
            self._note(notice)
        return connection

    def _give_up(self, error: Exception) -> None:
        if not self.lasting:
            return  # already reported
        fix = "Set `paths.data` to a folder with room that can be written to."
        self._note(f"Results are not being saved: the store {self.path} cannot be used ({error}). {fix}")

    def _note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


_VERDICT_COLUMNS = tuple(VerdictRow.__dataclass_fields__)
_TURN = ", ".join(Turn.__dataclass_fields__)


def open_store(folder: Path) -> Store:
    """Return the store in `folder` (`settings.paths.data`), created if missing. Never fails: see `Store.notices`."""
    return Store(folder / "store.sqlite3")


def _as_text(document: Mapping[str, object] | None) -> str | None:
    return None if document is None else json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _pack(document: Mapping[str, object]) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 6)


def _unpack(blob: object) -> Document:
    return json.loads(zlib.decompress(cast(bytes, blob)))
