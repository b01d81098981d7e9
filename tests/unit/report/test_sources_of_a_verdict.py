import pytest
import sample_verdicts as sample

from kernel_lsp.errors import SourceError
from kernel_lsp.report.sources import write_sources


def evidence(**sources):
    given = {"baseline": "old\r\n", "candidate": "new\n", "workload": "CASES = []\n"}
    return sample.evidence(
        kernel_path="src/softmax.cu", workload_path="bench/rows_workload.py", sources=given | sources
    )


def test_each_version_lies_where_judge_finds_its_workload(tmp_path):
    written = write_sources(evidence(candidate_launch="def launch(): ...\n"), tmp_path / "new")
    assert {str(path.relative_to(tmp_path / "new")): path.read_bytes() for path in written} == {
        "baseline/softmax.cu": b"old\r\n",
        "baseline/softmax_workload.py": b"CASES = []\n",
        "candidate/softmax.cu": b"new\n",
        "candidate/softmax_workload.py": b"def launch(): ...\n",
    }


def test_a_workload_in_the_kernel_file_is_not_written_twice(tmp_path):
    kept = sample.evidence(
        kernel_path="a.py", workload_path="a.py", sources={"baseline": "1", "candidate": "2", "workload": "1"}
    )
    assert [path.name for path in write_sources(kept, tmp_path)] == ["a.py", "a.py"]


def test_other_peoples_files_are_left_alone(tmp_path):
    write_sources(evidence(), tmp_path)
    write_sources(evidence(), tmp_path)
    mine = tmp_path / "candidate/softmax.cu"
    mine.write_text("mine")
    with pytest.raises(SourceError) as caught:
        write_sources(evidence(), tmp_path)
    assert caught.value.path == mine
    assert mine.read_text() == "mine"
