"""Captures as files, and the workloads that they are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernel_lsp.capture.inject import describe
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers import captured as oracle
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.capture import FOLDER, Capture, CapturedCase, capture_text, find_captures, read_capture
from kernel_lsp.workload.captured import bind_captured, captured_workload
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.spec import find_workloads

TEXT = "import torch\n\n\ndef f(x, w, scale=1.0, sizes=()):\n    x += 1\n    return x * w * scale, None, w\n"
KERNEL = "import triton\n\n\n@triton.jit\ndef k(p):\n    pass\n"


def capture(tmp_path: Path, text: str = TEXT, **arguments: object) -> Capture:
    arguments = arguments or {"x": torch.randn(9, 4), "w": torch.ones(4), "scale": 2.0, "sizes": (4, 2)}
    described = describe.describe_arguments(arguments)
    case = CapturedCase(described, ("x",) if "x" in arguments else (), 1, 12, 0.5)
    return Capture("train.py", str(tmp_path / "f.py"), "f", ("k",), text, (case,), 12)


def drawn(made: Capture, seed: int = 0) -> tuple[object, ...]:
    workload = captured_workload(capture_text(made), Path("a.capture.json"))
    return Draws(workload, "cpu").make(0, "normal", seed)


def test_a_capture_is_read_as_it_was_written(tmp_path: Path):
    made = capture(tmp_path)
    again = read_capture(capture_text(made), tmp_path)
    assert capture_text(again) == capture_text(made)
    assert again.mutated == ("x",)


@pytest.mark.parametrize("damage", [lambda text: text[:90], lambda text: text.replace(":1,", ":9,", 1)])
def test_a_damaged_capture_is_an_error_for_people(tmp_path: Path, damage):
    with pytest.raises(WorkloadError) as raised:
        read_capture(damage(capture_text(capture(tmp_path))), tmp_path / "a.capture.json")
    assert "Capture the program again" in (raised.value.fix or "")


def test_a_capture_is_the_workload_of_its_file_until_somebody_writes_one(tmp_path: Path):
    kernel = tmp_path / "f.py"
    kernel.write_text(KERNEL)
    made = replace(capture(tmp_path), kernel=str(kernel.resolve()))
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / made.file_name).write_text(capture_text(made))
    source = SourceFile(kernel, KERNEL)
    (found,) = find_workloads(source)
    assert found.captured
    assert found.source.path.name == made.file_name
    assert list(find_captures(tmp_path / "other.py")) == []
    (tmp_path / "f_workload.py").write_text("CASES = [{}]\ndef inputs(): ...\ndef reference(): ...\n")
    assert [one.captured for one in find_workloads(source)] == [False]


def test_inputs_are_like_those_seen_but_other_ones(tmp_path: Path):
    rows = torch.randn(64, 6)
    x = torch.empty_strided((64, 4), (6, 1)).copy_(rows[:, :4].clamp(min=0))
    first = drawn(capture(tmp_path, x=x, labels=torch.arange(12).flip(0), offsets=torch.arange(9)))
    second = drawn(capture(tmp_path, x=x, labels=torch.arange(12).flip(0), offsets=torch.arange(9)), 1)
    assert first[0].stride() == (6, 1)
    assert not torch.equal(first[0], second[0])
    assert 0.3 < float((first[0] == 0).float().mean()) < 0.7
    assert float(first[0].min()) == 0
    assert torch.equal(first[2], torch.arange(9))  # offsets: neither they nor what goes with them is shuffled
    assert torch.equal(first[1], torch.arange(12).flip(0))


def test_whole_numbers_in_no_order_are_shuffled(tmp_path: Path):
    labels = torch.randint(0, 50, (40,))
    (first,) = drawn(capture(tmp_path, labels=labels))
    assert not torch.equal(first, labels)
    assert torch.equal(first.sort().values, labels.sort().values)


def test_structure_is_kept_and_promised(tmp_path: Path):
    made = capture(tmp_path, mask=torch.randn(6, 6).tril())
    workload = captured_workload(capture_text(made), Path("a.capture.json"))
    (mask,) = drawn(made)
    assert torch.equal(mask.tril(), mask)
    assert workload.contract.promise("mask").lower_triangular


def test_what_is_no_number_may_be_an_argument(tmp_path: Path):
    assert drawn(capture(tmp_path, mode="llama", none=None, dtype=torch.float16)) == ("llama", None, torch.float16)


def test_numbers_that_are_sizes_are_not_varied_and_tuples_are_taken_apart(tmp_path: Path):
    workload = captured_workload(capture_text(capture(tmp_path)), Path("a.capture.json"))
    assert workload.argument_names == ("x", "w", "scale", "sizes_0", "sizes_1")
    assert workload.contract.promise("sizes_1").fixed
    assert not workload.contract.promise("scale").fixed
    assert workload.contract.mutates == ("x",)


def test_launch_returns_what_is_new_or_changed(tmp_path: Path):
    module = load_module(TEXT, tmp_path / "f.py")
    launch = bind_captured(capture_text(capture(tmp_path)), tmp_path)
    x, w = torch.zeros(9, 4), torch.ones(4)
    y, changed = launch(module, x, w, 2.0, 4, 2)
    assert float(y[0, 0]) == 2
    assert changed is x


@pytest.mark.parametrize(
    ("body", "rung"),
    [
        ("return x * 2", "in float64"),
        ("return x * 2 + (x.dtype == torch.float64)", "in float32"),
        ("return x * 2 + (x.element_size() > 2)", "by its own outputs"),
    ],
)
def test_the_first_rung_that_agrees_with_the_function_is_what_is_right(tmp_path: Path, body: str, rung: str):
    folder = tmp_path / rung.replace(" ", "_")
    folder.mkdir()
    text = f"import torch\n\n\ndef f(a, x):\n    {body}\n"
    made = capture(folder, text, a=1, x=torch.randn(8).bfloat16())
    made = replace(made, cases=(replace(made.cases[0], mutated=()),), kernel=str(folder / f"f_{rung[-5:].strip()}.py"))
    workload = captured_workload(capture_text(made), Path("a.capture.json"))
    assert workload.captured is not None
    said = oracle.settle(workload.captured, Draws(workload, "cpu"))
    assert said.startswith(f"as right as the captured function, {rung}")


def test_a_rung_that_is_known_is_taken_without_a_run(tmp_path: Path):
    text = "import torch\n\n\ndef f(a, x):\n    raise RuntimeError('nobody asked')\n"
    made = capture(tmp_path, text, a=1, x=torch.randn(8))
    workload = captured_workload(capture_text(made), Path("a.capture.json"))
    assert workload.captured is not None
    said = oracle.settle(workload.captured, Draws(workload, "cpu"), "wider")
    assert workload.captured.rung == "wider"
    assert said == "as right as the captured function, in float32"


def test_without_a_gpu_a_large_case_is_not_run_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kernel_lsp.policy.EMULATED_RUNG_BYTES", 16)
    text = "import torch\n\n\ndef f(a, x):\n    raise RuntimeError('nobody asked')\n"
    workload = captured_workload(capture_text(capture(tmp_path, text, a=1, x=torch.randn(8))), Path("a.capture.json"))
    assert workload.captured is not None
    said = oracle.settle(workload.captured, Draws(workload, "cpu"))
    assert workload.captured.rung == "itself"
    assert "too large for the emulator" in said
