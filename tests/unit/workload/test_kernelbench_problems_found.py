"""Where the problem of a KernelBench file is found."""

import pytest

from kernel_lsp.errors import SourceError, WorkloadError
from kernel_lsp.judge.target import make_target
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.spec import find_workload, require_workload

PROBLEM = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
ANSWER = "class ModelNew: ...\n"
WORKLOAD = "CASES = [{}]\ndef inputs(): ...\ndef reference(x): ...\ndef launch(module, x): ...\n"


def answer(folder, name, text=ANSWER):
    (folder / name).write_text(text)
    return SourceFile(folder / name, text)


def write(path, text=PROBLEM):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gelu.py", "gelu_problem.py"),
        ("gelu_cuda.py", "gelu.py"),
        ("gelu_triton.py", "gelu.py"),
        ("gelu_new.py", "gelu.py"),
        ("gelu_kernel.py", "gelu.py"),
        ("gelu_cuda.py", "gelu_cuda_problem.py"),
    ],
)
def test_a_neighbour_s_name_tells(tmp_path, name, problem):
    path = write(tmp_path / problem)
    found = find_workload(answer(tmp_path, name))
    assert found is not None
    assert (found.source.path, found.source.text, found.problem) == (path, PROBLEM, True)
    assert (found.in_kernel_file, found.has_launch, found.kernel_path) == (False, False, tmp_path / name)


@pytest.mark.parametrize(
    "name",
    ["level_1_problem_19_sample_0_kernel.py", "level1_problem19_sample3.py", "run4_level_1_problem_19_sample_12.py"],
)
def test_kernelbench_s_own_names_are_looked_up_in_its_folder(tmp_path, name):
    path = write(tmp_path / "KernelBench" / "level1" / "19_ReLU.py")
    write(tmp_path / "KernelBench" / "level1" / "190_Other.py")
    kernel = answer(tmp_path, name)
    found = find_workload(kernel, problems=tmp_path / "KernelBench")
    assert found is not None
    assert found.source.path == path
    assert find_workload(kernel) is None
    assert find_workload(kernel, problems=tmp_path) is None


def test_a_file_that_holds_its_problem_is_its_own_workload(tmp_path):
    write(tmp_path / "gelu.py", "class Model: ...\n")
    found = find_workload(answer(tmp_path, "gelu_cuda.py", PROBLEM + ANSWER))
    assert found is not None
    assert (found.in_kernel_file, found.problem, found.source.text) == (True, True, PROBLEM + ANSWER)


def test_a_neighbour_that_is_no_problem_is_passed_over(tmp_path):
    write(tmp_path / "gelu_problem.py", "x = 1\n")
    path = write(tmp_path / "gelu.py")
    found = find_workload(answer(tmp_path, "gelu_new.py"))
    assert found is not None
    assert found.source.path == path


def test_only_a_model_new_has_a_problem_by_its_name(tmp_path):
    write(tmp_path / "gelu.py")
    assert find_workload(answer(tmp_path, "gelu_cuda.py", "x = 1\n")) is None


def test_a_problem_may_be_named_and_the_open_text_counts(tmp_path):
    path = write(tmp_path / "elsewhere.py", "x = 1\n")
    found = find_workload(answer(tmp_path, "gelu.py"), path, {path: PROBLEM})
    assert found is not None
    assert (found.source.text, found.problem) == (PROBLEM, True)
    beside = tmp_path / "gelu_problem.py"
    assert find_workload(answer(tmp_path, "gelu.py"), texts={beside: PROBLEM}) is not None


def test_a_workload_of_the_usual_kind_comes_first(tmp_path):
    write(tmp_path / "gelu.py")
    usual = write(tmp_path / "gelu_cuda_workload.py", WORKLOAD)
    found = find_workload(answer(tmp_path, "gelu_cuda.py"))
    assert found is not None
    assert (found.source.path, found.problem) == (usual, False)


def test_without_one_the_fix_says_where_to_put_it(tmp_path):
    with pytest.raises(WorkloadError, match="no problem was found") as caught:
        require_workload(answer(tmp_path, "gelu.py"))
    assert "gelu_problem.py" in (caught.value.fix or "")
    assert "kernelbench.root" in (caught.value.fix or "")


def test_a_problem_for_a_cu_file_lacks_what_a_workload_needs(tmp_path):
    path = write(tmp_path / "gelu.py")
    with pytest.raises(WorkloadError, match="does not define CASES"):
        find_workload(SourceFile(tmp_path / "gelu.cu", ""), path)


def test_a_problem_alone_is_a_target_whose_model_is_the_baseline(tmp_path):
    target = make_target(write(tmp_path / "gelu.py"))
    assert (target.language, target.kernels, target.workload.problem) == (Language.TORCH, (), True)
    assert (target.baseline.kernel.text, target.baseline.launch) == (PROBLEM, None)
    with pytest.raises(SourceError, match="no kernel was found"):
        make_target(write(tmp_path / "plain.py", "x = 1\n"))
