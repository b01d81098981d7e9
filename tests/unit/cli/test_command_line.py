import json
import os
import subprocess
import sys

import pytest

from kernel_lsp import __version__
from kernel_lsp.cli.main import COMMANDS
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.store.store import open_store
from tests.forked_commands import forked
from tests.scale_kernel import KERNEL

START = "from kernel_lsp.cli.main import main; main()"
VERDICT = {
    "id": "3f9a2c1e" + "0" * 56,
    "verdict": "UNTIMED",
    "stage": "correct",
    "reason": "There is no GPU here.",
    "cases": [],
    "speedup": None,
    "interval": None,
    "seconds": {"total": 0.5},
    "evidence": {
        "created": "2026-01-02T03:04:05Z",
        "baseline_digest": "b" * 64,
        "candidate_digest": "c" * 64,
        "candidate_label": "BLOCK 128 -> 256",
        "candidate_origin": "user",
        "kernel_path": "softmax.py",
        "workload_path": "softmax.py",
        "sources": {"softmax.py": "..."},
        "seed": 7,
        "checks": [],
        "errors": [],
        "mismatch": None,
        "baseline_resources": [],
        "candidate_resources": [],
        "device": None,
        "versions": {},
        "build_way": "triton",
        "build_log": "",
        "settings": {},
        "discarded_blocks": 0,
        "protections": [],
        "command": "kernel-lsp judge softmax.py other.py",
    },
}


@pytest.fixture
def kernel_lsp(tmp_path):
    """Run the command in its own process, with its own home and the given environment.

    It is forked, see `forked_commands`; `real` starts it as a shell does.
    """

    def run(*args: str, real: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(tmp_path), "KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "COLUMNS": "100"}
        environment = {**os.environ, **own, **environment}
        return subprocess.run(
            [*([sys.executable, "-c", START] if real else forked()), *args],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_version_is_told(kernel_lsp):
    assert kernel_lsp("--version", real=True).stdout == f"kernel-lsp {__version__}\n"


def test_version_imports_nothing_heavy():
    heavy = ("torch", "triton", "numpy", "vllm", "pydantic", "rich", "cuda", "sqlite3", "asyncio")
    code = f"""
import sys
sys.argv = ["kernel-lsp", "--version"]
from kernel_lsp.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code
print([name for name in {heavy!r} if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("judge", ("kernel_lsp.check", "kernel_lsp.mutation_testing", "kernel_lsp.refine", "kernel_lsp.bench")),
        ("report", ("kernel_lsp.check", "kernel_lsp.mutation_testing")),
        ("check", ("kernel_lsp.mutation_testing", "kernel_lsp.refine", "kernel_lsp.lsp")),
    ],
)
def test_a_command_imports_no_other_commands_work(command, others):
    code = f"import sys, kernel_lsp.cli.{command}; print([name for name in {others!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "[]\n"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_imports_no_gpu_library(command):
    code = f"""
import sys
sys.argv = ["kernel-lsp", {command!r}, "--help"]
from kernel_lsp.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code
print([name for name in ("torch", "triton", "numpy", "vllm", "cuda") if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert f"{command} [OPTIONS]" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_command_by_its_name(kernel_lsp):
    listed = [line.split()[1] for line in kernel_lsp("--help", real=True).stdout.splitlines() if line.startswith("│ ")]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


def test_a_terminal_without_unicode(kernel_lsp):
    answer = kernel_lsp("explain", "KL030", real=True, PYTHONIOENCODING="ascii")
    assert answer.returncode == 0
    assert answer.stderr == ""
    answer = kernel_lsp("doctor", real=True, PYTHONIOENCODING="ascii")
    assert "\\u27" in answer.stdout
    assert answer.returncode == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["facts", "check", "refine"])
def test_a_link_to_itself_is_an_error_of_one_sentence(kernel_lsp, tmp_path, command):
    (tmp_path / "loop.cu").symlink_to("loop.cu")
    answer = kernel_lsp(command, "loop.cu")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error This is a link that leads back to itself.")
    assert "permissions" not in answer.stderr


@pytest.mark.parametrize("command", [("check",), ("judge", "other.cu"), ("refine",)], ids=lambda one: one[0])
def test_a_workload_that_is_not_there_is_an_argument_that_cannot_be_used(kernel_lsp, tmp_path, command):
    """It is no finding in a kernel: nothing was looked at."""
    (tmp_path / "scale.cu").write_text(KERNEL)
    answer = kernel_lsp(*command, "scale.cu", "--workload", "gone_workload.py")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error --workload names no file.")
    assert "gone_workload.py" in answer.stderr
    assert "kernel-lsp draft FILE" in answer.stderr


def test_facts_of_a_folder_are_refused(kernel_lsp, tmp_path):
    (tmp_path / "folder").mkdir()
    answer = kernel_lsp("facts", "folder")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error This is a folder; facts are shown of one file.")


def test_settings_that_are_no_table(kernel_lsp, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\nkernel-lsp = 3\n")
    answer = kernel_lsp("report")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error The project's settings are not a table.")
    assert "pyproject.toml:2" in answer.stderr


def test_an_unknown_command_is_a_usage_error(kernel_lsp):
    answer = kernel_lsp("frobnicate", real=True)
    assert answer.returncode == 2
    assert "No such command" in answer.stderr


def test_a_wrong_setting_reads_like_help(kernel_lsp, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp.judge]\ndelta = 7\n")
    answer = kernel_lsp("report")
    assert answer.returncode == 2
    assert answer.stdout == ""
    first, place, fix, *_ = answer.stderr.splitlines()
    assert first.startswith("error `judge.delta = 7`")
    assert place.strip().startswith("at")
    assert place.rstrip().endswith("pyproject.toml:2")
    assert fix.strip().startswith("fix It is: Smallest difference")


def test_a_narrow_terminal_cuts_nothing_off(kernel_lsp, tmp_path):
    folder = tmp_path / "a_folder_with_a_long_name" / "and_another_below"
    folder.mkdir(parents=True)
    (folder / "k.cu").write_text("__global__ void k() {}\n")
    (folder / "k_workload.py").write_text("def (\n")
    checked = kernel_lsp("check", str(folder.relative_to(tmp_path)), COLUMNS="40")
    assert checked.returncode == 1
    assert "1 error" in checked.stdout.partition("error:")[0]
    with open_store(tmp_path / "data") as store:
        store.save_verdict(VERDICT | {"verdict": "BUILD_FAILED"})
    listed = kernel_lsp("report", COLUMNS="40").stdout
    assert "BUILD_FAILED" in listed
    assert "…" not in listed


def test_report_by_a_prefix_of_the_id(kernel_lsp, tmp_path):
    with open_store(tmp_path / "data") as store:
        store.save_verdict(VERDICT)
    answer = kernel_lsp("report", "3f9a")
    assert answer.returncode == 0
    assert "UNTIMED" in answer.stdout
    assert "kernel-lsp report 3f9a2c1e --sources 3f9a2c1e" in answer.stdout
    said = Verdict.model_validate_json(kernel_lsp("report", "3f9a", "--json").stdout)
    assert said == Verdict.model_validate(VERDICT)


def test_report_lists_the_latest(kernel_lsp, tmp_path):
    assert "No verdict was recorded yet" in kernel_lsp("report").stdout
    with open_store(tmp_path / "data") as store:
        store.save_verdict(VERDICT)
    assert kernel_lsp("report").stdout.split()[:3] == ["3f9a2c1e", "UNTIMED", "softmax.py"]
    assert json.loads(kernel_lsp("report", "--json").stdout)[0]["id"] == VERDICT["id"]


def test_report_of_an_unknown_id(kernel_lsp):
    answer = kernel_lsp("report", "beef")
    assert answer.returncode == 2
    assert "No verdict begins with `beef`" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_what_happened_to_the_store_is_said(kernel_lsp, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.sqlite3").write_bytes(b"no database" * 100)
    answer = kernel_lsp("report")
    assert answer.returncode == 0
    assert answer.stderr.startswith("note The store")
    assert "set aside" in " ".join(answer.stderr.split())


def test_a_reader_that_goes_away_is_met_with_silence():
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-c", START, "doctor", "--json"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(writer)
    assert process.stderr == ""


def test_doctor_answers_on_any_machine(kernel_lsp):
    answer = kernel_lsp("doctor", "--json", real=True)
    assert answer.returncode == 0
    items = {item["name"]: item for item in json.loads(answer.stdout)}
    assert items["torch"]["found"]
    assert {"nvrtc", "CUDA toolkit", "nvcc", "ncu", "compute-sanitizer", "vllm", "triton"} <= set(items)
    for item in items.values():
        assert item["cost"]
        assert item["fix"]


def test_how_a_workload_is_written_can_be_read_in_a_terminal(kernel_lsp):
    answer = kernel_lsp("explain", "workload")
    assert answer.returncode == 0
    assert "reference(*inputs)" in answer.stdout
    assert "NONDETERMINISTIC" in answer.stdout
