"""Where a kernel's workload is found, and what is said of one that cannot be used, all without running it."""

import os
from pathlib import Path

import pytest

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.spec import find_workload, find_workloads, require_workload

WORKLOAD = """\
CASES = [dict(n=4)]
def inputs(n): ...
def reference(x): ...
def launch(module, x): ...
"""


def kernel_file(folder: Path, name: str = "softmax.cu", text: str = "") -> SourceFile:
    path = folder / name
    path.write_text(text)
    return SourceFile(path, text)


def write(path: Path, text: str = WORKLOAD) -> Path:
    path.write_text(text)
    return path


def test_a_sibling_named_after_the_kernel_is_its_workload(tmp_path):
    kernel = kernel_file(tmp_path)
    sibling = write(tmp_path / "softmax_workload.py")
    found = find_workload(kernel)
    assert found is not None
    assert (found.source.path, found.source.text) == (sibling, WORKLOAD)
    assert (found.kernel_path, found.in_kernel_file, found.has_launch) == (kernel.path, False, True)


def test_a_python_file_with_the_three_names_is_its_own_workload_even_beside_a_sibling(tmp_path):
    text = "CASES: list = [{}]\ndef inputs(): ...\ndef reference(x): ...\n"
    kernel = kernel_file(tmp_path, "softmax.py", text)
    write(tmp_path / "softmax_workload.py")
    found = find_workload(kernel)
    assert found is not None
    assert found.in_kernel_file
    assert found.source is kernel
    assert not found.has_launch


def test_the_text_in_the_editor_counts_and_not_the_file_on_disk(tmp_path):
    on_disk = kernel_file(tmp_path, "softmax.py", "# nothing yet\n")
    assert find_workload(on_disk) is None
    found = find_workload(SourceFile(on_disk.path, WORKLOAD))
    assert found is not None
    assert found.source.text == WORKLOAD


def test_the_text_in_the_editor_counts_also_when_the_file_itself_is_named(tmp_path):
    on_disk = kernel_file(tmp_path, "softmax.py", "# nothing yet\n")
    edited = SourceFile(on_disk.path, WORKLOAD)
    found = find_workload(edited, on_disk.path)
    assert found is not None
    assert found.in_kernel_file
    assert found.source.text == WORKLOAD


def test_a_neighbour_that_names_the_kernel_is_its_workload(tmp_path):
    kernel = kernel_file(tmp_path)
    write(tmp_path / "a_workload.py", "KERNEL = 'gemm.cu'\n" + WORKLOAD)
    wanted = write(tmp_path / "b_workload.py", "KERNEL = 'softmax.cu'\n" + WORKLOAD)
    found = find_workload(kernel)
    assert found is not None
    assert found.source.path == wanted


@pytest.mark.parametrize(
    "neighbour",
    [b"KERNEL = (", b"KERNEL = b'softmax.cu'", b"\xff\xfe", b"KERNEL = name", b"x = 1", b"KERNEL = 'softmax.cu'\0"],
)
def test_a_neighbour_that_cannot_be_read_or_names_nothing_is_passed_over(tmp_path, neighbour):
    kernel = kernel_file(tmp_path)
    (tmp_path / "other_workload.py").write_bytes(neighbour)
    assert find_workload(kernel) is None


def test_the_workload_named_wins_over_the_sibling(tmp_path):
    kernel = kernel_file(tmp_path)
    write(tmp_path / "softmax_workload.py")
    named = write(tmp_path / "elsewhere.py", "CASES = [{}]\ndef inputs(): ...\ndef reference(x): ...\n")
    found = find_workload(kernel, named)
    assert found is not None
    assert found.source.path == named
    assert not found.has_launch


def test_parts_may_be_imported_from_another_file(tmp_path):
    kernel = kernel_file(tmp_path)
    write(tmp_path / "softmax_workload.py", "from shared import CASES, inputs\nfrom shared import ref as reference\n")
    found = find_workload(kernel)
    assert found is not None
    assert not found.has_launch


def test_without_a_workload_the_help_names_the_file_to_write(tmp_path):
    kernel = kernel_file(tmp_path)
    assert find_workload(kernel) is None
    with pytest.raises(WorkloadError) as caught:
        require_workload(kernel)
    assert caught.value.path == kernel.path
    assert caught.value.fix is not None
    for word in ("softmax_workload.py", "--workload", "CASES", "inputs", "reference", "launch"):
        assert word in caught.value.fix


def test_a_workload_without_some_parts_is_told_which(tmp_path):
    kernel = kernel_file(tmp_path)
    sibling = write(tmp_path / "softmax_workload.py", "def inputs(): ...\n")
    with pytest.raises(WorkloadError, match="does not define CASES and reference") as caught:
        find_workload(kernel)
    assert caught.value.path == sibling


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: There is no such file"), (b"x = '\xff'", "not UTF-8"), (b"a = 1\0", "cannot parse.*null")],
)
def test_a_named_workload_that_cannot_be_read_is_reported(tmp_path, content, says):
    named = tmp_path / "mine.py"
    if content is not None:
        named.write_bytes(content)
    with pytest.raises(WorkloadError, match=says) as caught:
        find_workload(kernel_file(tmp_path), named)
    assert caught.value.path == named


def test_a_folder_is_not_a_workload(tmp_path):
    with pytest.raises(WorkloadError, match="cannot be read: This is a directory"):
        find_workload(kernel_file(tmp_path), tmp_path)


def test_a_syntax_error_is_reported_at_its_line(tmp_path):
    kernel = kernel_file(tmp_path)
    sibling = write(tmp_path / "softmax_workload.py", WORKLOAD + "\ndef broken(:\n")
    with pytest.raises(WorkloadError, match="cannot parse") as caught:
        find_workload(kernel)
    assert (caught.value.path, caught.value.line) == (sibling, 6)


@pytest.mark.parametrize("named", [True, False])
def test_a_pipe_is_no_workload_and_is_not_waited_for(tmp_path, named):
    kernel = kernel_file(tmp_path)
    os.mkfifo(tmp_path / "other_workload.py")
    if not named:
        assert find_workload(kernel) is None
        return
    with pytest.raises(WorkloadError, match="cannot be read: This is a pipe"):
        find_workload(kernel, tmp_path / "other_workload.py")


@pytest.mark.parametrize("text", [f"a = {'-' * 100_000}1", f"a = {'+'.join(['1'] * 20_000)}"])
def test_a_workload_that_is_nested_too_deep_is_no_crash(tmp_path, text):
    kernel = kernel_file(tmp_path)
    write(tmp_path / "other_workload.py", f"{WORKLOAD}{text}\n")
    assert find_workload(kernel) is None  # a neighbour that cannot be read is not this kernel's
    write(tmp_path / "softmax_workload.py", f"{WORKLOAD}{text}\n")
    with pytest.raises(WorkloadError, match="cannot parse this file: it is nested too deep"):
        find_workload(kernel)


def test_a_kernel_file_that_is_nested_too_deep_is_no_crash(tmp_path):
    text = f"import triton\n\n@triton.jit\ndef k(x):\n    pass\n\na = {'+'.join(['1'] * 20_000)}\n"
    with pytest.raises(WorkloadError, match="cannot parse this file: it is nested too deep"):
        find_workload(kernel_file(tmp_path, "k.py", text))


def test_workloads_lie_outside_of_the_package_and_several_belong_to_a_file(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "test" / "kernels").mkdir(parents=True)
    kernel = kernel_file(tmp_path / "src")
    folders = [tmp_path / "test"]
    named = "KERNEL = '../../src/softmax.cu'\n" + WORKLOAD
    forward = write(tmp_path / "test/kernels/forward_workload.py", named)
    write(tmp_path / "test/kernels/gemm_workload.py")
    assert find_workload(kernel) is None
    found = find_workload(kernel, folders=folders)
    assert found is not None
    assert found.source.path == forward
    backward = write(tmp_path / "test/kernels/backward_workload.py", named)
    assert [one.source.path for one in find_workloads(kernel, folders=folders)] == [backward, forward]
    with pytest.raises(WorkloadError, match=r"there are 2 workloads .*backward.*forward") as caught:
        require_workload(kernel, folders=folders)
    assert "--workload" in str(caught.value.fix)
    assert [one.source.path for one in find_workloads(kernel, forward, folders=folders)] == [forward]
    own = write(tmp_path / "src/softmax_workload.py")
    assert require_workload(kernel, folders=folders).source.path == own
    assert [one.source.path for one in find_workloads(kernel, folders=folders)] == [own, backward, forward]


def test_a_workload_elsewhere_belongs_to_a_file_by_its_name_unless_it_names_another(tmp_path):
    (tmp_path / "tests").mkdir()
    kernel = kernel_file(tmp_path)
    path = write(tmp_path / "tests/softmax_workload.py")
    assert [one.source.path for one in find_workloads(kernel, folders=[tmp_path / "tests"])] == [path]
    write(path, "KERNEL = '../gemm.cu'\n" + WORKLOAD)
    assert find_workloads(kernel, folders=[tmp_path / "tests"]) == ()
