"""The device level on the CPU: the recorder and the replay, built here, against a stub of driver and CUPTI."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from device_stub import NATIVE, Stub, build, build_stub
from rich.console import Console

from kernel_lsp.capture import device_level as level
from kernel_lsp.capture.device_level import ChosenLaunch
from kernel_lsp.capture.device_record import read_device
from kernel_lsp.capture.program_record import LaunchedKernel, ProgramRecord, with_gpu_time
from kernel_lsp.capture.ranking import ranking
from kernel_lsp.capture.replay import replay
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.capture.snapshot import Snapshot, read_snapshot
from kernel_lsp.compiler.toolchain.toolkit import header_folders
from kernel_lsp.errors import CannotJudgeError, SourceError
from kernel_lsp.report.capture import captured_view, replay_view
from kernel_lsp.report.captured_calls import usage_text
from kernel_lsp.workload.capture import Capture, CapturedCase


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def machine(stub: Stub, monkeypatch: pytest.MonkeyPatch):
    """A machine on which the stub is the driver, and its libcupti the only one."""
    monkeypatch.setattr(level, "has_driver", lambda: True)
    monkeypatch.setattr(level, "find_library", lambda _: stub.cupti)
    monkeypatch.setenv("LD_LIBRARY_PATH", stub.library_path)
    monkeypatch.delenv(level.INJECTION, raising=False)
    monkeypatch.delenv("RANK", raising=False)


def captured(stub: Stub, cache: Path, folder: Path, *arguments: str, snapshot: ChosenLaunch | None = None) -> Captured:
    return capture_program([*stub.program, *arguments], folder, cache=cache, snapshot=snapshot)


def kept(stub: Stub, cache: Path, folder: Path, name: str, launch: int = 1) -> Snapshot:
    found = captured(stub, cache, folder, snapshot=ChosenLaunch(name, launch))
    assert found.seen.on_device.snapshot_why == ()
    (snapshot,) = found.snapshots
    return snapshot


def shown(view: object) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_every_kernel_of_any_program_has_its_time_and_its_share(stub: Stub, cache: Path, tmp_path: Path):
    found = captured(stub, cache, tmp_path)
    assert (found.code, found.untimed) == (5, "")
    times = {kernel.symbol: kernel for kernel in found.seen.on_device.kernels}
    assert {symbol: kernel.launches for symbol, kernel in times.items()} == {"scale_view": 3, "batched": 3, "racy": 1}
    assert times["scale_view"].seconds == pytest.approx(1500e-9)
    assert [one.share for one in ranking(found.seen)] == pytest.approx([3 / 7, 3 / 7, 1 / 7])
    text = shown(captured_view(found, "program"))
    assert "7 launches of 3 kernels" in text
    assert "on Stub GPU" in text
    assert "Shares are of GPU time." in text
    assert re.search(r"42\.9 % +1\.17x +3 +500 ns|42\.9 % +1\.17x +3 +0\.5", text), text


def test_a_program_computes_and_prints_what_it_would_have(stub: Stub, cache: Path, tmp_path: Path):
    plain = subprocess.run(stub.program, capture_output=True, text=True, check=False)
    times, memory = level.device_level({}, cache), level.device_level({}, cache, ChosenLaunch("batched"))
    for chosen in (times, memory):
        environment = {**os.environ, **chosen.environment, "KERNEL_LSP_CAPTURE": str(tmp_path)}
        watched = subprocess.run(stub.program, env=environment, capture_output=True, text=True, check=False)
        assert (watched.returncode, watched.stdout, watched.stderr) == (plain.returncode, plain.stdout, "")
    assert read_device(tmp_path).processes == 2


def test_a_program_that_is_killed_keeps_what_was_seen(stub: Stub, cache: Path, tmp_path: Path):
    found = captured(stub, cache, tmp_path, "killed")
    assert found.code == -9
    assert sum(kernel.launches for kernel in found.seen.on_device.kernels) == 7
    assert "signal 9" in shown(captured_view(found, "program"))


def test_a_struct_of_pointers_is_replayed_to_the_bit(stub: Stub, cache: Path, tmp_path: Path):
    snapshot = kept(stub, cache, tmp_path, "scale_view")
    assert (snapshot.grid, snapshot.block, snapshot.nbytes) == ((8, 1, 1), (128, 1, 1), 8192)
    done = replay(snapshot, cache)
    assert (done.same_addresses, done.wrong, done.unstable) == (True, 0, 0)
    assert (done.nbytes, done.own) == (2 * 4096 + 16, True)
    assert done.changed > 2000
    assert done.median_us == pytest.approx(2.5)
    assert "Equal" in shown(replay_view(done))


def test_a_table_of_pointers_and_a_variable_are_followed(stub: Stub, cache: Path, tmp_path: Path):
    """The third launch: its rows and the counter in `c_bias` are no longer what the program began with."""
    snapshot = kept(stub, cache, tmp_path, "batched", launch=3)
    assert sorted(size for _, size in snapshot.memory) == [16, 400, 400]
    done = replay(snapshot, cache)
    assert (done.wrong, done.unstable, done.same_addresses) == (0, 0, True)
    assert done.nbytes == 816 + 16


@pytest.mark.parametrize(("moment", "nbytes"), [("asked", 8192 + 16), ("launched", 8192)])
def test_a_module_that_is_loaded_late_is_kept(
    stub: Stub, cache: Path, tmp_path: Path, moment: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
):
    """With lazy loading the driver loads a kernel's module when it is first asked for, or within the launch."""
    monkeypatch.setenv("STUB_LAZY", moment)
    snapshot = kept(stub, cache, tmp_path, "scale_view")
    monkeypatch.delenv("STUB_LAZY")
    assert replay(snapshot, cache).nbytes == nbytes


@pytest.mark.parametrize("name", ["scale_view", "batched"])
def test_where_the_addresses_are_taken_the_pointers_are_rewritten(
    stub: Stub, cache: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    snapshot = kept(stub, cache, tmp_path, name)
    monkeypatch.setenv("STUB_NO_ADDRESS", "1")
    done = replay(snapshot, cache)
    assert (done.same_addresses, done.wrong, done.unstable) == (False, 0, 0)
    assert "at other addresses" in shown(replay_view(done))


def test_a_replay_that_differs_names_the_first_byte(stub: Stub, cache: Path, tmp_path: Path):
    snapshot = kept(stub, cache, tmp_path, "scale_view")
    memory = snapshot.folder / "memory-1.after"
    data = bytearray(memory.read_bytes())
    data[17] ^= 0xFF
    memory.write_bytes(data)
    done = replay(snapshot, cache)
    assert done.wrong == 1
    assert done.where.startswith("memory 1, byte 17: ")
    assert "Different: 1 bytes" in shown(replay_view(done))


def test_a_kernel_whose_replays_differ_is_nondeterministic(stub: Stub, cache: Path, tmp_path: Path):
    done = replay(kept(stub, cache, tmp_path, "racy"), cache)
    assert done.unstable > 0
    assert "NONDETERMINISTIC" in shown(replay_view(done))


def test_other_machine_code_needs_the_same_kernel(stub: Stub, cache: Path, tmp_path: Path):
    snapshot = kept(stub, cache, tmp_path, "scale_view")
    with pytest.raises(SourceError, match="this is no cubin"):
        replay(snapshot, cache, cubin=NATIVE / "cuda_calls.h")
    one, two = 'extern "C" void batched() {}', 'extern "C" void racy() {}'
    for name, text in (("one", one), ("two", one + two)):
        (tmp_path / f"{name}.cpp").write_text(text)
        build("-c", "-ffunction-sections", tmp_path / f"{name}.cpp", "-o", tmp_path / f"{name}.o")
    with pytest.raises(SourceError, match="it has no kernel `scale_view`, and 2 others"):
        replay(snapshot, cache, cubin=tmp_path / "two.o")
    with pytest.raises(CannotJudgeError, match="takes other arguments than the kept launch gives: parameter 0"):
        replay(snapshot, cache, cubin=tmp_path / "one.o")


def test_what_keeps_a_snapshot_from_being_made_is_said(
    stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def why(name: str, **more: int) -> str:
        found = captured(stub, cache, tmp_path, snapshot=ChosenLaunch(name, **more))
        assert found.snapshots == ()
        (said,) = found.seen.on_device.snapshot_why
        assert f"There is no snapshot: {said}." in shown(captured_view(found, "program"))
        return said

    assert why("softmax") == "no kernel of that name was launched"
    assert why("batched", launch=9) == "the kernel was launched only 3 times"
    assert why("batched", most_bytes=100) == "its arguments point into 0 MiB of memory, and at most 0 are kept"
    monkeypatch.setenv("STUB_CAPTURING", "1")
    assert why("batched") == "it was launched within the capture of a CUDA graph"


def test_why_there_are_no_times_is_said(stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STUB_OLD", "1")
    found = captured(stub, cache, tmp_path)
    assert found.untimed == "libcupti is older than that of CUDA 12"
    monkeypatch.delenv("STUB_OLD")
    monkeypatch.setenv("STUB_PROFILED", "1")
    found = captured(stub, cache, tmp_path, snapshot=ChosenLaunch("batched"))
    assert found.untimed == "cuptiActivityRegisterCallbacks failed with 7"
    assert found.seen.on_device.snapshot_why == ("another profiler is in the program",)
    assert "GPU time was not recorded: " in shown(captured_view(found, "program"))


def test_another_profiler_or_no_libcupti_or_no_driver_leaves_the_program_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    assert level.device_level({level.INJECTION: "/opt/nsys.so"}, cache).why == (
        "another profiler is there (CUDA_INJECTION64_PATH=/opt/nsys.so)"
    )

    def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(level, "find_library", nothing)
    assert "no libcupti" in level.device_level({}, cache).why
    monkeypatch.setattr(level, "has_driver", lambda: False)
    assert level.device_level({}, cache) == level.DeviceLevel()


def test_a_snapshot_that_cannot_be_made_is_refused_before_the_program_runs(
    stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(level, "has_driver", lambda: False)
    with pytest.raises(CannotJudgeError, match="no NVIDIA driver"):
        captured(stub, cache, tmp_path, snapshot=ChosenLaunch("batched"))
    with pytest.raises(CannotJudgeError, match="the emulator is its GPU"):
        capture_program(stub.program, tmp_path, cache=cache, emulate="sm_80", snapshot=ChosenLaunch("batched"))


def test_another_rank_is_not_recorded(stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    assert captured(stub, cache, tmp_path).seen.on_device.processes == 0


def test_processes_are_summed(tmp_path: Path):
    one = {"symbol": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "launches": 2, "in_graphs": 1, "ns": 10}
    one |= {"least_ns": 4, "most_ns": 6}
    record = {"why": "", "device": "", "unfinished": 1, "span_ns": 100, "snapshot_why": "", "kernels": [one, one]}
    for process in ("1", "2"):
        (tmp_path / f"{process}.device.json").write_text(json.dumps(record))
    (tmp_path / "3.device.json").write_text("{")
    found = read_device(tmp_path)
    (kernel,) = found.kernels
    assert (kernel.launches, kernel.in_graphs, kernel.shapes) == (8, 4, 2)
    assert (found.processes, found.unfinished, found.seconds) == (2, 2, pytest.approx(40e-9))


def test_a_kernel_of_python_takes_its_share_from_the_gpu(tmp_path: Path):
    one = {"symbol": "add", "grid": [1, 1, 1], "block": [1, 1, 1], "launches": 2, "in_graphs": 0, "ns": 30}
    one |= {"least_ns": 4, "most_ns": 6}
    library = {**one, "symbol": "_Z4gemmPf", "ns": 70}
    record = {"why": "", "device": "", "unfinished": 0, "span_ns": 9, "snapshot_why": "", "kernels": [one, library]}
    (tmp_path / "1.device.json").write_text(json.dumps(record))
    launched = LaunchedKernel("add", "/k.py", 3, launches=5, function="added", seconds=9.0, calls=5, shapes=1)
    elsewhere = LaunchedKernel("mul", "/k.py", 9, launches=1)
    seen = ProgramRecord(kernels=(launched, elsewhere), on_device=read_device(tmp_path))
    gemm, add, mul = ranking(seen)
    assert (gemm.kernel.name, add.kernel, mul.share) == ("gemm", launched, None)
    assert (gemm.share, add.share) == (pytest.approx(0.7), pytest.approx(0.3))
    text = shown(captured_view(Captured(0, seen, ()), "train.py"))
    assert "3 launches have no time" in text
    assert "none: launched, and not seen on the GPU" in text


def test_the_kernels_of_a_torch_extension_stand_for_its_function(tmp_path: Path):
    one = {"grid": [1, 1, 1], "block": [1, 1, 1], "launches": 4, "in_graphs": 0, "least_ns": 4, "most_ns": 6}
    symbols = {"_ZN2ns4normIfEEvPf": 60, "_Z4normPd": 20, "_Z5otherPf": 20}
    kernels = [{**one, "symbol": symbol, "ns": ns} for symbol, ns in symbols.items()]
    record = {"why": "", "device": "", "unfinished": 0, "span_ns": 9, "snapshot_why": "", "kernels": kernels}
    (tmp_path / "1.device.json").write_text(json.dumps(record))
    cases = (CapturedCase({}, (), 1, 3, 3.0), CapturedCase({}, (), 1, 1, 1.0))
    capture = Capture("train.py", "/norm.cu", "forward", ("norm",), "", cases, 4, program_seconds=8.0, seconds=4.0)
    on_device = read_device(tmp_path)
    launched = LaunchedKernel("forward", "/norm.cu", 7, launches=4, function="forward", seconds=4.0, calls=4, shapes=2)
    seen = ProgramRecord(
        kernels=(launched,), captures=(with_gpu_time(capture, (capture,), on_device),), on_device=on_device
    )
    assert [(one.kernel.name, one.kernel.function, one.share) for one in ranking(seen)] == [
        ("ns::norm<float>", "forward", pytest.approx(0.6)),
        ("norm", "forward", pytest.approx(0.2)),
        ("other", "", pytest.approx(0.2)),
    ]
    assert seen.captures[0].share(cases) == pytest.approx(0.8)
    assert seen.captures[0].share(cases[1:]) == pytest.approx(0.2)
    assert usage_text("train.py", seen.captures) == "80 % of train.py's GPU time, 2 shapes, 4 calls"
    assert usage_text("train.py", (capture,)) == "50 % of train.py's host time, 2 shapes, 4 calls"
    twin = replace(capture, function="backward")
    assert not with_gpu_time(capture, (capture, twin), on_device).on_gpu, "it is not known which of them spent it"


def test_a_folder_that_is_no_snapshot_is_refused(tmp_path: Path):
    with pytest.raises(SourceError, match="there is no snapshot"):
        read_snapshot(tmp_path)
    (tmp_path / "launch").write_text("other\n")
    with pytest.raises(SourceError, match="no snapshot of this version"):
        read_snapshot(tmp_path)
    (tmp_path / "launch").write_text("kernel-lsp-launch 1\nsymbol k\ngrid 1 1 one\n")
    with pytest.raises(SourceError, match="damaged"):
        read_snapshot(tmp_path)


def test_a_damaged_snapshot_is_an_error_of_one_sentence(stub: Stub, cache: Path, tmp_path: Path):
    snapshot = kept(stub, cache, tmp_path, "batched")
    (snapshot.folder / "memory-0.before").write_bytes(b"")
    with pytest.raises(CannotJudgeError, match="is shorter than it was written"):
        replay(snapshot, cache)


def test_our_layouts_are_those_of_nvidias_headers(tmp_path: Path):
    folders = [folder for folder in header_folders() if (folder / "cuda.h").is_file()]
    cupti = [folder for folder in header_folders() if (folder / "cupti.h").is_file()]
    if not folders or not cupti:
        pytest.skip("no toolkit with cuda.h and cupti.h")
    checks = (Path(__file__).parent / "nvidia_layouts.cpp").read_text()
    (tmp_path / "layouts.cpp").write_text(checks)
    includes = [f"-isystem{folder}" for folder in (*cupti, *folders)]
    build("-fsyntax-only", *includes, tmp_path / "layouts.cpp")


def test_the_kernel_of_a_kept_launch_becomes_a_workload_where_its_text_is_here(
    stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "count.cu").write_text('extern "C" __global__ void racy(int* counter) { *counter += 1; }\n')
    monkeypatch.chdir(tmp_path)
    found = captured(stub, cache, tmp_path / "captures", snapshot=ChosenLaunch("racy"))
    (made,) = found.seen.captures
    assert (made.function, made.cases[0].mutated, made.share(made.cases)) == (
        "racy",
        ("counter",),
        pytest.approx(1 / 7),
    )
    assert [path.name for path in found.written] == [made.file_name]
    assert "of its launches" in shown(captured_view(found, "program"))
    unmade = captured(stub, cache, tmp_path / "captures", snapshot=ChosenLaunch("batched"))
    assert "No workload of batched: no .cu file of the working folder" in shown(captured_view(unmade, "program"))


def test_gpu_times_keep_to_the_window_and_to_the_ranks_that_are_recorded(
    stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def launches(**more: float | None) -> int:
        found = capture_program(stub.program, tmp_path, cache=cache, **more)
        return sum(kernel.launches for kernel in found.seen.on_device.kernels)

    assert launches(after=2) == 5
    assert launches(window=1e-6) == 3, "a launch of the stub begins 500 ns after the one before"
    assert launches(after=5, window=1e-6) == 2
    monkeypatch.setenv("RANK", "3")
    assert launches(rank=None) == 7


def test_memory_in_pieces_is_said_of_a_snapshot(
    stub: Stub, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")
    found = captured(stub, cache, tmp_path, snapshot=ChosenLaunch("batched"))
    assert "The snapshot may lack memory: with expandable_segments:True" in shown(captured_view(found, "program"))
    assert "may lack" not in shown(captured_view(captured(stub, cache, tmp_path), "program"))
