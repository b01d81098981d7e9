import hashlib
import multiprocessing
import os
import resource
import signal
import sqlite3
import threading

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.store.database import SCHEMA_VERSION, SCHEMAS
from kernel_lsp.store.store import SHORTEST_ID, open_store

SPAWN = multiprocessing.get_context("spawn")


def verdict(name: str, **changes) -> dict:
    evidence = {
        "kernel_path": changes.pop("kernel", "softmax.cu"),
        "baseline_digest": "b" * 64,
        "candidate_digest": "c" * 64,
        "candidate_label": "BLOCK 128 -> 256",
        "device": {"name": "NVIDIA H200"},
        "sources": {"softmax.cu": "__global__ void f() {}\n" * 50},
    }
    document = {"id": hashlib.sha256(name.encode()).hexdigest(), "verdict": "FASTER", "stage": "timed", "speedup": 1.42}
    return document | {"evidence": evidence} | changes


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path) as store:
        yield store
        assert store.notices == []


def test_a_verdict_comes_back_as_it_was(store):
    document = verdict("one")
    store.save_verdict(document)
    assert store.find_verdict(document["id"]) == document
    assert store.find_verdict("0" * 64) is None
    row = store.list_verdicts()[0]
    assert (row.id, row.verdict, row.speedup, row.device) == (document["id"], "FASTER", 1.42, "NVIDIA H200")


def test_verdicts_outlive_the_store(tmp_path):
    with open_store(tmp_path) as store:
        store.save_verdict(verdict("one"))
    with open_store(tmp_path) as store:
        assert store.find_verdict(verdict("one")["id"]) == verdict("one")


def test_a_repeated_verdict_replaces_the_older_and_keeps_its_turns(store):
    first = verdict("one", verdict="AMBIGUOUS")
    store.save_verdict(first)
    store.append_turn("s", "c", verdict=first["id"])
    store.save_verdict(verdict("one"))
    assert [row.verdict for row in store.list_verdicts()] == ["FASTER"]
    assert store.list_turns("s")[0].verdict == first["id"]


def test_a_verdict_without_a_device(store):
    document = verdict("one", verdict="UNTIMED", speedup=None)
    document["evidence"]["device"] = None
    store.save_verdict(document)
    row = store.list_verdicts()[0]
    assert (row.device, row.speedup) == (None, None)


def test_lists_are_newest_first_and_by_kernel(store):
    for name, kernel in [("a", "x.cu"), ("b", "y.cu"), ("c", "x.cu")]:
        store.save_verdict(verdict(name, kernel=kernel))
    ids = {name: verdict(name)["id"] for name in "abc"}
    assert [row.id for row in store.list_verdicts()] == [ids["c"], ids["b"], ids["a"]]
    assert [row.id for row in store.list_verdicts(kernel="x.cu", limit=1)] == [ids["c"]]


def test_a_short_id_is_unique_and_found_again(store):
    twin = "ab12cd34ef" + "0" * 54, "ab12cd34ee" + "0" * 54
    for one in (*twin, "f" * 64):
        store.save_verdict(verdict("x", id=one))
    assert store.short_id("f" * 64) == "f" * SHORTEST_ID
    assert store.short_id(twin[0]) == "ab12cd34ef"
    assert store.resolve("AB12CD34EE") == twin[1]


def test_an_id_that_fits_nothing_or_too_much(store):
    with pytest.raises(ConfigurationError, match="None was recorded yet"):
        store.resolve("abc")
    store.save_verdict(verdict("x", id="a" * 64))
    store.save_verdict(verdict("x", id="ab" * 32))
    with pytest.raises(ConfigurationError, match=r"No verdict begins with `b`.*latest ones are: abababab, aaaaaaaa"):
        store.resolve("b")
    with pytest.raises(ConfigurationError, match="Several verdicts"):
        store.resolve("a")


def test_wildcards_in_an_id_are_only_characters(store):
    store.save_verdict(verdict("x"))
    with pytest.raises(ConfigurationError, match="No verdict begins"):
        store.resolve("%")


def test_turns_are_numbered_in_order(store):
    store.save_verdict(verdict("one"))
    store.append_turn("s", "c1", prompt="make it faster", answer="so", verdict=verdict("one")["id"])
    store.append_turn("t", "c9")
    store.append_turn("s", "c2", verdict="unknown")
    turns = store.list_turns("s")
    assert [(t.number, t.candidate, t.prompt) for t in turns] == [(1, "c1", "make it faster"), (2, "c2", None)]
    assert [t.verdict for t in turns] == [verdict("one")["id"], None]
    assert store.list_sessions() == ["s", "t"]


def test_a_turn_is_kept_with_its_outcome_and_replaced_in_its_place(store):
    asked = {"prompt": "faster", "answer": "so", "number": 1, "target": "k" * 64}
    store.append_turn("s", "", **asked, outcome={"result": "NOT_JUDGED"})
    store.append_turn("s", "c1", **asked, outcome={"result": "SLOWER", "speedup": 0.5}, circumstances={"gpu": "H200"})
    [turn] = store.list_turns("s")
    assert (turn.candidate, turn.target, turn.outcome) == ("c1", "k" * 64, {"result": "SLOWER", "speedup": 0.5})
    assert turn.circumstances == {"gpu": "H200"}


def test_all_searches_are_listed(store):
    for number in range(25):
        store.append_turn(f"s{number}", "c")
    assert len(store.list_sessions()) == 20
    assert len(store.list_sessions(-1)) == 25


def test_threads_share_one_store(store):
    def work(name):
        for n in range(20):
            store.save_verdict(verdict(f"{name}-{n}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list_verdicts(limit=1000)) == 80


def _write_many(folder, name, count, said):
    with open_store(folder) as store:
        for n in range(count):
            document = verdict(f"{name}-{n}")
            store.save_verdict(document)
            store.append_turn("shared", document["id"])
            said.put(document["id"])
        assert store.notices == []


def _die_in_a_transaction(folder, ready):
    connection = sqlite3.connect(folder / "store.sqlite3", isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # so that uncommitted pages reach the log
    connection.execute("BEGIN IMMEDIATE")
    for n in range(200):
        connection.execute("INSERT INTO checks VALUES (?, 0, ?)", (f"uncommitted-{n}", b"x" * 4096))
    ready.set()
    signal.pause()


def test_many_processes_write_while_one_is_killed_mid_transaction(tmp_path):
    open_store(tmp_path).close()
    said, ready = SPAWN.Queue(), SPAWN.Event()
    victim = SPAWN.Process(target=_die_in_a_transaction, args=(tmp_path, ready))
    victim.start()
    assert ready.wait(30)
    writers = [SPAWN.Process(target=_write_many, args=(tmp_path, str(i), 25, said)) for i in range(8)]
    for writer in writers:
        writer.start()
    os.kill(victim.pid, signal.SIGKILL)  # it holds the write lock all the while
    committed = {said.get(timeout=60) for _ in range(8 * 25)}
    for process in (*writers, victim):
        process.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 8

    with open_store(tmp_path) as store:
        assert {row.id for row in store.list_verdicts(limit=10_000)} == committed
        turns = store.list_turns("shared")
        assert [turn.number for turn in turns] == list(range(1, 201))
        assert {turn.candidate for turn in turns} == committed
        assert store.find_check("uncommitted-0") is None
        assert store.notices == []


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_saved(tmp_path):
    said = SPAWN.Queue()
    writer = SPAWN.Process(target=_write_many, args=(tmp_path, "w", 100_000, said))
    writer.start()
    saved = {said.get(timeout=30) for _ in range(10)}
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(30)
    with open_store(tmp_path) as store:
        assert saved <= {row.id for row in store.list_verdicts(limit=1_000_000)}
        assert sqlite3.connect(store.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _open_and_save(folder, name, barrier):
    barrier.wait()
    with open_store(folder) as store:
        store.save_verdict(verdict(name))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("content", [b"", b"this is no database at all" * 100])
def test_many_processes_open_a_new_or_damaged_file_at_once(tmp_path, content):
    (tmp_path / "store.sqlite3").write_bytes(content)
    barrier = SPAWN.Barrier(4)
    openers = [SPAWN.Process(target=_open_and_save, args=(tmp_path, str(i), barrier)) for i in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
    with open_store(tmp_path) as store:
        assert len(store.list_verdicts()) == 4
    assert len(list(tmp_path.glob("store.damaged-*.sqlite3"))) == bool(content)


def test_a_damaged_file_is_set_aside_and_kept(tmp_path):
    (tmp_path / "store.sqlite3").write_bytes(b"not a database" * 100)
    with open_store(tmp_path) as store:
        store.save_verdict(verdict("one"))
        assert len(store.list_verdicts()) == 1
        (notice,) = store.notices
    (aside,) = tmp_path.glob("store.damaged-*.sqlite3")
    assert aside.name in notice
    assert aside.read_bytes() == b"not a database" * 100


def test_damage_deep_in_the_file_is_found_when_it_is_met(tmp_path):
    with open_store(tmp_path) as store:
        for n in range(200):
            store.save_verdict(verdict(str(n)))
    path = tmp_path / "store.sqlite3"
    content = path.read_bytes()
    path.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    with open_store(tmp_path) as store:
        assert store.notices == []
        assert store.list_verdicts() == []
        store.save_verdict(verdict("after"))
        assert [row.id for row in store.list_verdicts()] == [verdict("after")["id"]]
        assert "is damaged" in store.notices[0]
    assert len(list(tmp_path.glob("store.damaged-*.sqlite3"))) == 1


def test_a_newer_file_is_set_aside_and_kept(tmp_path):
    with open_store(tmp_path) as store:
        store.save_verdict(verdict("one"))
    connection = sqlite3.connect(tmp_path / "store.sqlite3")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with open_store(tmp_path) as store:
        assert store.list_verdicts() == []
        assert "newer version" in store.notices[0]
    (aside,) = tmp_path.glob("store.newer-*.sqlite3")
    assert sqlite3.connect(aside).execute("SELECT count(*) FROM verdicts").fetchone() == (1,)


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path):
    (tmp_path / "file").write_text("")
    with open_store(tmp_path / "file" / "data") as store:
        store.save_verdict(verdict("one"))
        store.save_verdict(verdict("two"))
        assert len(store.list_verdicts()) == 2  # kept as long as the store is open
        (notice,) = store.notices
        assert "not being saved" in notice
        assert "paths.data" in notice


def _save_on_a_full_disk(folder, answer):
    with open_store(folder) as store:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (folder / "store.sqlite3-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        for n in range(3):
            store.save_verdict(verdict(f"lost-{n}"))
        answer.put((store.notices, [row.id for row in store.list_verdicts()]))


def test_a_full_disk_is_said_and_reading_goes_on(tmp_path):
    with open_store(tmp_path) as store:
        store.save_verdict(verdict("kept"))
        answer = SPAWN.Queue()
        process = SPAWN.Process(target=_save_on_a_full_disk, args=(tmp_path, answer))
        process.start()
        notices, ids = answer.get(timeout=30)
        process.join(30)
    assert len(notices) == 1
    assert "not being saved" in notices[0]
    assert ids == [verdict("kept")["id"]]


def _read_without_leave_to_write(folder, answer):
    os.setuid(65534)
    with open_store(folder) as store:
        store.save_verdict(verdict("lost"))
        answer.put((store.notices, [row.id for row in store.list_verdicts()]))


@pytest.mark.skipif(os.getuid() != 0, reason="root is needed to become someone who may not write")
def test_a_folder_of_someone_else_can_be_read(tmp_path):
    with open_store(tmp_path) as store:
        store.save_verdict(verdict("kept"))
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    answer = SPAWN.Queue()
    process = SPAWN.Process(target=_read_without_leave_to_write, args=(tmp_path, answer))
    process.start()
    notices, ids = answer.get(timeout=30)
    process.join(30)
    assert "not being saved" in notices[0]
    assert ids == [verdict("kept")["id"]]


def test_checks_are_kept_by_key(tmp_path):
    with open_store(tmp_path) as store:
        store.save_check("k", {"n": 1})
        store.save_check("k", {"n": 2})
    with open_store(tmp_path) as store:
        assert store.find_check("k") == {"n": 2}
        assert store.find_check("other") is None


def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path):
    connection = sqlite3.connect(tmp_path / "store.sqlite3")
    connection.executescript(SCHEMAS[0])
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO turns VALUES ('old', 1, 0, 'candidate', NULL, NULL, NULL)")
    connection.commit()
    connection.close()
    with open_store(tmp_path) as store:
        store.save_check("new", {"n": 1})
        [turn] = store.list_turns("old")
        assert (turn.candidate, turn.target, turn.outcome, turn.circumstances) == ("candidate", None, None, None)
        assert store.notices == []
    with open_store(tmp_path) as store:
        assert store.find_check("new") == {"n": 1}
