"""The ledger of a bench: what is in it stays, and what was cut off costs one line."""

import pytest

from kernel_lsp.bench.records import Ledger, key_of
from kernel_lsp.errors import ConfigurationError
from tests.unit.bench.bench_results import comparison, published, result


def test_a_later_line_of_the_same_candidate_counts(tmp_path):
    ledger = Ledger(tmp_path / "new/folder/results.jsonl")
    assert ledger.read() == {}
    first, second = result("a"), result("a", compiled=comparison(), published=published())
    ledger.append(first)
    ledger.append(result("b"))
    assert ledger.read() == {"a": first, "b": result("b")}
    ledger.append(second)
    assert ledger.read()["a"] == second


def test_a_line_that_was_cut_off_is_skipped_and_not_continued(tmp_path):
    ledger = Ledger(tmp_path / "results.jsonl")
    ledger.append(result("a"))
    with ledger.path.open("ab") as file:
        file.write(result("b").model_dump_json().encode()[:100])
    assert set(ledger.read()) == {"a"}
    ledger.append(result("c"))
    assert set(ledger.read()) == {"a", "c"}
    assert len(ledger.path.read_bytes().splitlines()) == 3


def test_lines_of_another_program_are_skipped(tmp_path):
    ledger = Ledger(tmp_path / "results.jsonl")
    ledger.path.write_bytes(b'{"key": "old"}\n\xff\xfe\n[]\n')
    ledger.append(result("a"))
    assert set(ledger.read()) == {"a"}


def test_a_ledger_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        Ledger(tmp_path).append(result("a"))


def test_a_key_changes_with_all_that_a_result_rests_on():
    given = ("problem", "candidate", {"judge": {"delta": 0.01}}, "NVIDIA H200", {"torch": "2.11"})
    keys = {
        key_of(*given),
        key_of("other", *given[1:]),
        key_of("problem", "other", *given[2:]),
        key_of("problem", "candidate", {"judge": {"delta": 0.02}}, *given[3:]),
        key_of(*given[:3], "emulator", given[4]),
        key_of(*given[:4], {"torch": "2.13"}),
    }
    assert len(keys) == 6
    assert key_of(*given) == key_of(*given)
