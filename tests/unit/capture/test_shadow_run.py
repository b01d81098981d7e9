"""`kernel-lsp capture --with`: a program runs with a variant, and a wrong one is named with its call and element."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kernel_lsp.capture.run import run_program
from kernel_lsp.capture.shadow import KernelVariant, Shadowed, rule, shadow_program, variant_of
from kernel_lsp.capture.shadow_record import ShadowDifference, ShadowProcess, read_shadows
from kernel_lsp.capture.step_time import step_times
from kernel_lsp.errors import SourceError
from kernel_lsp.report.shadow import shadow_view
from kernel_lsp.store.store import open_store
from kernel_lsp.workload.capture import Capture, capture_text
from tests.unit.capture.shadow_programs import BACKWARD, IN_PLACE, KERNELS, OUTLIER, PROGRAM, RAGGED, changed
from tests.unit.report.sample_verdicts import faster

CLI = "from kernel_lsp.cli.main import main; main()"
FUNCTIONS = {"add", "add_again", "add_into", "scale_backward", "scale_forward"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(KERNELS)
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints without us."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "ops.py").write_text(KERNELS)
    (folder / "train.py").write_text(PROGRAM)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "train.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def run(project: Path, text: str, *, every: int = 100, step: str = "") -> Shadowed:
    (project / "variant.py").write_text(text)
    variant = KernelVariant(project / "ops.py", text, "variant.py", project / "variant.py")
    return shadow_program([sys.executable, str(project / "train.py")], variant, every=every, step=step)


def only(found: Shadowed) -> ShadowProcess:
    (process,) = found.processes
    assert process.errors == ()
    return process


def shown(found: Shadowed) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        console.print(shadow_view(found, "train.py"))
    return captured.get()


def command(project: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (project / "variant.py").write_text(text)
    words = ("capture", "--with", "variant.py", "--of", "ops.py", *options, "--", sys.executable, "train.py")
    environment = {**os.environ, "COLUMNS": "400"}
    return subprocess.run(
        [sys.executable, "-c", CLI, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_with_the_identical_file_the_program_computes_the_same_bits(project: Path, plain: str):
    done = command(project, KERNELS, "--every", "5")
    assert done.stdout == plain
    assert plain.startswith("True")  # nothing holds a tensor past its call
    assert done.returncode == 0
    assert "agrees with ops.py in all" in done.stderr
    assert "none, all elements are equal" in done.stderr


def test_a_wrong_variant_is_named_with_call_and_element(project: Path):
    found = run(project, changed(RAGGED, IN_PLACE, BACKWARD))
    process = only(found)
    counts = {one.name: (one.calls, one.by_variant, one.compared, one.wrong) for one in process.functions}
    # 64, 41 and 8 elements: each kind of call is done by both once; `noisy` calls `add` with 41 as well.
    assert counts["add"] == (26, 26, 3, 1)
    assert counts["add_into"] == (12, 12, 1, 1)
    assert counts["scale_backward"] == (12, 12, 1, 1)
    assert counts["scale_forward"] == (12, 12, 1, 0)
    wrong = {one.function: (one.call, one.output, one.index, one.wrong) for one in process.wrong}
    assert wrong["add"] == (2, "output 0", (40,), 1)
    assert wrong["add_into"] == (1, "argument `x`", (31,), 1)
    assert wrong["scale_backward"][:3] == (1, "output 0", (0,))
    add = next(one for one in process.wrong if one.function == "add")
    assert float(add.actual) == pytest.approx(float(add.expected) + 1)
    assert found.wrong
    assert "Wrong: call 2 of add, output 0, element [40]: " in shown(found)


def test_what_is_wrong_on_rare_values_only_is_found_on_live_data(project: Path):
    done = command(project, changed(OUTLIER), "--every", "1")
    assert done.returncode == 4
    assert "Wrong: call 16 of add, output 0, element [5]: 3000, expected 4000 " in done.stderr
    assert "variant.py is not right in place of ops.py." in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\nraise ValueError('no')\n", "cannot be imported: ValueError: no (line 2)"),
        pytest.param("def add(:\n", "cannot be imported: SyntaxError", marks=pytest.mark.thorough),
        pytest.param(
            changed(("def add_into(x, y):\n", "def add_into(x, y):\n    assert False, 'never'\n")),
            "add_into, call 1: AssertionError: never",
            marks=pytest.mark.thorough,
        ),
        # The second of two launches fails, when the first has changed its argument.
        (
            changed((IN_PLACE[0], f"{IN_PLACE[0]}\n    scale_kernel[(1,)](x, nothing, 2.0, 1, BLOCK=32)")),
            "add_into, call 1: NameError: name 'nothing' is not defined (line 28). The original went on.",
        ),
    ],
)
def test_a_variant_that_fails_leaves_the_program_to_the_original(project: Path, plain: str, text: str, said: str):
    done = command(project, text)
    assert done.returncode == 4
    assert done.stdout == plain
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_no_memory_for_both_is_no_fault_of_the_variant(project: Path, plain: str):
    late = (
        "HELD = []\n\n\ndef add_into(x, y):\n    x.mul_(1 if HELD else 2)\n    if not HELD:\n        HELD.append(1)\n"
    )
    late += "        raise torch.OutOfMemoryError('full')\n"
    done = command(project, changed(("def add_into(x, y):\n", late)))
    assert (done.returncode, done.stdout) == (0, plain)
    assert "add_into: 1 calls not compared: there is no memory for both" in done.stderr


@pytest.mark.thorough
def test_functions_that_the_variant_lacks_are_said_and_calls_without_one_too(project: Path):
    (project / "ops.py").write_text(
        KERNELS + "\n\nclass Bound:\n    def go(self, x):\n        add_kernel[(1,)](x, x, x, 1, BLOCK=32)\n"
    )
    program = PROGRAM.replace("kept =", "import ops\nops.Bound().go(x)\nkept =")
    (project / "train.py").write_text(program)
    found = run(project, changed(("def add_again", "def add_anew"), ("add_again(", "add_anew(")))
    process = only(found)
    assert {one.name for one in process.functions} == FUNCTIONS - {"add_again"}
    assert process.missing == ("add_again",)
    assert process.outside == {"add_kernel of the original": 13}
    assert "the variant has no function `add_again`" in shown(found)


def test_a_program_that_is_killed_keeps_what_was_seen(project: Path):
    killed = PROGRAM.replace("kept =", f"os.kill(os.getpid(), {int(signal.SIGKILL)})\nkept =")
    (project / "train.py").write_text(killed)
    found = run(project, changed(RAGGED))
    assert found.code == -signal.SIGKILL
    assert [(one.call, one.index) for one in only(found).wrong if one.function == "add"] == [(2, (40,))]
    assert "ended with signal 9" in shown(found)


def test_after_our_third_error_the_original_runs(
    project: Path, plain: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    (project / "variant.py").write_text(changed(RAGGED))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    more = {"FILE": str(project / "ops.py"), "VARIANT": str(project / "variant.py"), "EVERY": "1", "RULE": "{}"}
    environment = {f"KERNEL_LSP_SHADOW_{name}": value for name, value in more.items()}
    assert run_program([sys.executable, "train.py"], scratch, environment) == 0
    (process,) = read_shadows(scratch)
    assert len(process.errors) == 3
    assert all("KeyError" in error for error in process.errors)
    assert sum(one.by_variant for one in process.functions) == 3
    assert capfd.readouterr().out.startswith("True")


def test_on_the_emulator_too(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    done = command(project, changed(RAGGED), "--emulate")
    assert done.returncode == 4, done.stderr
    assert "Wrong: call 2 of add, output 0, element [40]: " in done.stderr
    assert "No step times: there is no GPU." in done.stderr


def test_steps_are_timed_with_either_in_turn(project: Path):
    slow = "import time\nimport torch\n" + KERNELS.replace(
        "def add(x, y, block=32):\n", "def add(x, y, block=32):\n    time.sleep(PAUSE)\n"
    )
    (project / "ops.py").write_text(slow.replace("PAUSE", "0.03"))
    (project / "train.py").write_text(
        "import torch\nfrom ops import add\nx = torch.randn(8)\n\n\ndef step():\n    add(x, x)\n\n\n"
        "for _ in range(170):\n    step()\n"
    )
    found = run(project, slow.replace("PAUSE", "0.01"), step="step")
    process = only(found)
    assert process.steps == 169  # the function is found in its first call
    assert [side for side, _, _ in process.segments[:4]] == ["original", "variant", "variant", "original"]
    add = next(one for one in process.functions if one.name == "add")
    assert 60 < add.by_variant < 120
    times = step_times(process.segments)
    assert times is not None
    assert times.interval is not None
    assert times.blocks >= 4
    assert times.interval[0] <= times.speedup <= times.interval[1]  # how large they are, a busy machine decides
    assert "mean nothing for a GPU" in shown(found)


def test_a_variant_is_of_the_captured_file_that_has_its_kernels(tmp_path: Path):
    for name in ("ops.py", "better.py"):
        (tmp_path / name).write_text(KERNELS)
    with pytest.raises(SourceError, match="no captured file has its kernels"):
        variant_of(tmp_path / "better.py", None, tmp_path)
    one = Capture("train.py", str(tmp_path / "ops.py"), "add", ("add_kernel",), KERNELS, (), 1)
    (tmp_path / one.file_name).write_text(capture_text(one))
    assert variant_of(tmp_path / "better.py", None, tmp_path).kernel == tmp_path / "ops.py"
    other = Capture("train.py", str(tmp_path / "more.py"), "add", ("add_kernel",), KERNELS, (), 1)
    (tmp_path / other.file_name).write_text(capture_text(other))
    with pytest.raises(SourceError, match="several captured files"):
        variant_of(tmp_path / "better.py", None, tmp_path)
    assert variant_of(tmp_path / "better.py", tmp_path / "ops.py", tmp_path).kernel == tmp_path / "ops.py"


def test_what_cannot_be_replaced_is_said_at_once(tmp_path: Path):
    (tmp_path / "ops.py").write_text(KERNELS)
    with pytest.raises(SourceError, match="the kernel's file itself"):
        variant_of(tmp_path / "ops.py", tmp_path / "ops.py", tmp_path)
    with pytest.raises(SourceError, match="only a Python module"):
        shadow_program([sys.executable, "train.py"], KernelVariant(tmp_path / "ops.cu", "", "better.cu"))
    with pytest.raises(SourceError, match="the program itself"):
        shadow_program(["python", str(tmp_path / "ops.py")], KernelVariant(tmp_path / "ops.py", KERNELS, "better.py"))


def test_a_variant_may_be_a_verdict_of_the_store(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNEL_LSP_PATHS_DATA", str(project / "data"))
    given = faster()
    sources = {"baseline": KERNELS, "candidate": changed(BACKWARD)}
    told = given.evidence.model_copy(update={"kernel_path": str(project / "ops.py"), "sources": sources})
    with open_store(project / "data") as store:
        store.save_verdict(given.model_copy(update={"evidence": told}).model_dump(mode="json"))
    words = ("capture", "--with", given.id[:8], "--", sys.executable, "train.py")
    done = subprocess.run([sys.executable, "-c", CLI, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "Wrong: call 1 of scale_backward, output 0, element [0]" in done.stderr


def test_a_file_that_nobody_imports_is_no_success(project: Path):
    (project / "train.py").write_text("print('nothing')\n")
    done = command(project, KERNELS)
    assert done.returncode == 3
    assert "ops.py was not replaced: no process of the program imported it" in done.stderr


def test_the_judges_table_is_the_rule():
    assert '"float32": 0.0001' in rule()
    off = ShadowDifference("add", 3, "output 0", "is float16[4], not float32[4]", 1)
    process = ShadowProcess("train.py", wrong=(off,), worst=off)
    found = Shadowed(0, KernelVariant(Path("ops.py"), "", "better.py"), (process,))
    assert "Wrong: call 3 of add, output 0: is float16[4], not float32[4]" in shown(found)
