"""Recording of a part of a program: a window, what comes after so many launches, several ranks, and times by events."""

import asyncio
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kernel_lsp.capture import run
from kernel_lsp.capture.device_level import DeviceLevel
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.report.capture import captured_view
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)


@triton.jit
def seldom_kernel(x):
    tl.store(x, 1.0)


def twice(x):
    out = torch.empty_like(x)
    twice_kernel[(1,)](x, out, x.numel(), BLOCK=32)
    return out


def seldom(x):
    seldom_kernel[(1,)](x)


def any_number(*tensors):
    seldom_kernel[(1,)](tensors[0])
"""
PROGRAM = """import sys, time
import torch
from ops import seldom, twice


class Event:
    made = 0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.made += 1

    def query(self):
        return True

    def elapsed_time(self, other):
        return 0.25


torch.cuda.Event = Event
if len(sys.argv) > 1:
    sys.modules["_kernel_lsp_events"]._LONG_SECONDS = float(sys.argv[1])
seldom(torch.ones(1))
x = torch.ones(8)
for call in range(40):
    x = twice(x).clamp(max=1)
    if call == 9 and len(sys.argv) > 2:
        time.sleep(float(sys.argv[2]))
print(Event.made)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ops.py").write_text(KERNEL)
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


def launches(found: Captured) -> dict[str, int]:
    assert (found.code, found.seen.errors) == (0, ())
    return {kernel.name: kernel.launches for kernel in found.seen.kernels}


def shown(found: Captured) -> str:
    console = Console(width=400, color_system=None)
    with console.capture() as capture:
        console.print(captured_view(found, "train.py"))
    return capture.get()


def without_cupti(own: object, cache: object, snapshot: object = None) -> DeviceLevel:
    return DeviceLevel(why="another profiler is there")


def test_without_the_profiling_library_one_launch_in_sixteen_is_timed_between_events(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run, "device_level", without_cupti)
    command = [sys.executable, str(project / "train.py"), "60"]
    found = capture_program(command, project / "captures", cache=project / "cache")
    assert launches(found) == {"twice_kernel": 40, "seldom_kernel": 1}
    assert capfd.readouterr().out.split() == ["4"], "two launches between two events each"
    (timed,) = found.seen.on_device.kernels
    assert (timed.symbol, timed.launches, timed.seconds) == ("twice_kernel", 40, pytest.approx(40 * 0.25e-3))
    assert not any(made.on_gpu for made in found.seen.captures), "a verdict speaks of all of the program's GPU time"
    text = shown(found)
    assert "GPU time was not recorded: another profiler is there." in text
    assert "by one launch in 16 between two CUDA events" in text
    assert "100.0 %" in text


def test_a_launch_in_which_the_host_took_long_is_not_timed(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "device_level", without_cupti)
    command = [sys.executable, str(project / "train.py"), "0"]
    found = capture_program(command, project / "captures", cache=project / "cache")
    assert found.seen.on_device.kernels == ()
    assert "not of GPU time" in shown(found)


def test_where_gpu_time_is_recorded_or_no_gpu_is_there_no_event_is_made(
    project: Path, capfd: pytest.CaptureFixture[str]
):
    found = capture_program([sys.executable, str(project / "train.py")], project / "captures")
    assert launches(found) == {"twice_kernel": 40, "seldom_kernel": 1}
    assert capfd.readouterr().out.split() == ["0"]


def test_recording_begins_after_so_many_launches_and_ends_with_its_window(project: Path):
    command = [sys.executable, str(project / "train.py")]
    later = capture_program(command, project / "captures", after=5)
    assert launches(later) == {"twice_kernel": 36}
    assert {made.function: made.calls for made in later.seen.captures} == {"twice": 36}
    brief = capture_program([*command, "60", "4"], project / "captures", window=3.5)
    assert launches(brief) == {"twice_kernel": 10, "seldom_kernel": 1}


def test_all_ranks_are_recorded_if_asked(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    command = [sys.executable, str(project / "train.py")]
    assert launches(capture_program(command, project / "captures")) == {}
    assert launches(capture_program(command, project / "captures", rank=None))["twice_kernel"] == 40


def test_calls_beyond_64_kinds_are_counted_with_their_reason_and_others_by_their_launches(project: Path):
    (project / "train.py").write_text(
        "import torch\nfrom ops import any_number, twice\n"
        "for n in range(1, 71):\n    twice(torch.ones(n)[:8])\n    twice(torch.ones(n, 2)[:, 0])\n"
        "any_number(torch.zeros(1))\n"
    )
    found = capture_program([sys.executable, str(project / "train.py")], project / "captures")
    assert launches(found) == {"twice_kernel": 140, "seldom_kernel": 1}
    made, alone = sorted(found.seen.captures, key=lambda one: one.is_kernel)
    assert made.calls == 140
    assert len(made.cases) == 64
    assert made.dropped == {"beyond 64 kinds of calls": 140 - sum(case.count for case in made.cases)}
    assert (alone.function, alone.is_kernel, alone.calls) == ("seldom_kernel", True, 1)
    assert "calls beyond 64 kinds of calls" in shown(found)


def test_of_a_function_that_takes_an_object_the_next_one_outward_is_captured(project: Path):
    (project / "ops.py").write_text(
        f"{KERNEL}\n\ndef with_object(thing, x):\n    seldom_kernel[(1,)](x)\n"
        "\n\ndef plain(x):\n    with_object(object(), x)\n"
    )
    (project / "train.py").write_text(
        "import torch\nimport ops\nops.plain(torch.zeros(1))\nops.with_object(object(), torch.zeros(1))\n"
    )
    found = capture_program([sys.executable, str(project / "train.py")], project / "captures")
    assert launches(found) == {"seldom_kernel": 2}
    assert [(made.function, made.calls) for made in found.seen.captures] == [("plain", 1)]


def test_a_captured_file_that_cannot_be_imported_alone_is_an_error_with_its_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    """What it needs is there while the program runs, and nowhere else."""
    (project / "ops.py").write_text(f"import made_by_the_program\n{KERNEL}")
    (project / "train.py").write_text(
        "import sys, types\nsys.modules['made_by_the_program'] = types.ModuleType('made_by_the_program')\n"
        "import torch\nimport ops\nops.twice(torch.ones(8))\n"
    )
    found = capture_program([sys.executable, str(project / "train.py")], project / FOLDER)
    assert [made.function for made in found.seen.captures] == ["twice"]
    monkeypatch.delenv("TRITON_INTERPRET")
    (report,) = asyncio.run(check([read_source(project / "ops.py")], Settings()))
    assert not report.ok
    said = [one for one in report.diagnostics if "made_by_the_program" in one.message]
    assert said, report.diagnostics
    assert "Traceback" not in said[0].message
