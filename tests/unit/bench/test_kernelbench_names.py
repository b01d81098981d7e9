"""KernelBench's files by their names, and the numbers of problems on the command line."""

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.workload.suite import find_problems, find_samples, parse_numbers, sample_name


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


def test_numbers_and_ranges():
    assert parse_numbers("1,19, 30-33") == {1, 19, 30, 31, 32, 33}


@pytest.mark.parametrize("text", ["", ",", "1,,x", "7-3", "-3", "1-", "0x3", "1-99999999"])
def test_what_names_no_problems_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"problem"):
        parse_numbers(text)


@pytest.mark.parametrize("inner", ["KernelBench", "."])
def test_problems_below_the_repository_or_its_inner_folder(tmp_path, inner):
    for name in ("level1/19_ReLU.py", "level1/2_Two_.py", "level2/1_One.py", "level1/notes.py", "level1/a_b.py"):
        touch(tmp_path / inner / name)
    found = find_problems(tmp_path)
    assert [(p.level, p.number, p.name) for p in found] == [(1, 2, "2_Two_"), (1, 19, "19_ReLU"), (2, 1, "1_One")]
    assert [p.number for p in find_problems(tmp_path, level=1, numbers={19, 1})] == [19]


def test_a_folder_without_problems_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="not in this folder"):
        find_problems(tmp_path)
    touch(tmp_path / "level1/19_ReLU.py")
    with pytest.raises(ConfigurationError, match="no such problem"):
        find_problems(tmp_path, level=3)


def test_candidates_of_several_runs(tmp_path):
    touch(tmp_path / sample_name(1, 19, 0))
    touch(tmp_path / "runs/first" / sample_name(1, 19, 10))
    touch(tmp_path / "runs/first" / sample_name(1, 19, 9))
    touch(tmp_path / "runs/first/level_1_problem_19_sample_x_kernel.py")
    touch(tmp_path / "runs/first/eval_results.json")
    found = find_samples(tmp_path)
    assert [(s.run, s.index) for s in found] == [("", 0), ("runs/first", 9), ("runs/first", 10)]
    assert [(s.run, s.index) for s in find_samples(tmp_path / "runs/first")] == [("", 9), ("", 10)]


def test_a_folder_without_candidates_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="No candidate"):
        find_samples(tmp_path)
