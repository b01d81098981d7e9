"""A GPU's kernels in programs that nobody prepared: their times and shares, one launch kept and replayed to the bit."""

import re
import subprocess
import sys
from pathlib import Path

import captured_programs as programs
import pytest
from judges import CommandLine

from kernel_lsp.capture.device_level import ChosenLaunch
from kernel_lsp.capture.replay import Replayed, replay
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.capture.snapshot import read_snapshot
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.device.nvml import Gpu
from tests.bench.capture_overhead import GOAL_PERCENT, GOAL_US, measure

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, gpu: Gpu) -> Path:
    return programs.compiled(tmp_path_factory.mktemp("cuda"), gpu)


def said(found: Captured) -> str:
    """What went wrong with a recording, for a failed assertion."""
    times = found.seen.on_device
    kernels = [(kernel.symbol, kernel.launches) for kernel in times.kernels]
    return f"untimed: {found.untimed}; times: {times.why}; snapshot: {times.snapshot_why}; {kernels}"


def kept(command: list[str], folder: Path, cache: Path, name: str, launch: int = 1) -> Captured:
    """A program's run with a snapshot of one launch, the first one unless said otherwise."""
    found = capture_program(command, folder / "captures", cache=cache, snapshot=ChosenLaunch(name, launch))
    assert found.snapshots, said(found)
    return found


def shown(done: Replayed) -> str:
    """A replay in words, for a failed assertion and for the log."""
    place = "same addresses" if done.same_addresses else "OTHER ADDRESSES"
    return (
        f"{done.snapshot.name}: {place} at attempt {done.attempt}, {done.wrong} of {done.nbytes} bytes wrong "
        f"({done.where}), {done.changed} changed, {done.unstable} unstable, {done.median_us:.2f} us"
    )


def test_every_kernel_of_a_plain_program_has_its_time_and_share(program: Path, house: Path, tmp_path: Path) -> None:
    plain = subprocess.run([str(program), str(programs.ROUNDS)], capture_output=True, text=True, check=False)
    assert plain.returncode == 7, plain.stdout + plain.stderr
    found = capture_program([str(program), str(programs.ROUNDS)], tmp_path / "captures", cache=house / "cache")
    assert found.code == 7
    times = {kernel.name: kernel for kernel in found.seen.on_device.kernels}
    names = {"scale_view", "batched", "biased", "reduce<float, 256>", "racing_sum"}
    assert set(times) == names, said(found)
    launches = {name: kernel.launches for name, kernel in times.items()}
    assert launches == {**dict.fromkeys(names, programs.ROUNDS + 2), "racing_sum": 1}
    assert found.seen.on_device.unfinished == 0
    # The program's own events time the rounds without the two first: gaps and all.
    of_rounds = sum(times[name].seconds for name in names - {"racing_sum"}) * programs.ROUNDS / (programs.ROUNDS + 2)
    by_events = float(plain.stderr.split()[0]) * 1e-6
    print(f"{of_rounds * 1e6:.1f} us of GPU time in rounds that take {by_events * 1e6:.1f} us by events")
    assert 0.5 * by_events < of_rounds < 1.15 * by_events


def test_the_command_line_ranks_by_gpu_time(program: Path, kernel_lsp: CommandLine) -> None:
    process = kernel_lsp("capture", "--", str(program), "20", COLUMNS="160")
    printed, told = process.communicate(timeout=120)
    assert process.returncode == 7, told
    assert printed.startswith("no error "), printed
    assert "Shares are of GPU time." in told, told
    assert re.search(r"\d+\.\d % +\d\.\d\dx +22 .*scale_view", told), told


@pytest.mark.parametrize("name", ["scale_view", "batched", "biased", "reduce"])
def test_a_launch_is_replayed_to_the_bit(program: Path, house: Path, tmp_path: Path, name: str) -> None:
    """A struct of pointers, a table of pointers with a counter in a variable, a constant, a template."""
    cache = house / "cache"
    done = replay(kept([str(program)], tmp_path, cache, name).snapshots[0], cache)
    print(shown(done))
    assert (done.wrong, done.unstable) == (0, 0), shown(done)
    assert done.changed > 0, shown(done)
    assert 0.5 < done.median_us < 1000


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "index"])
def test_a_kernel_of_torchs_own_is_replayed_to_the_bit(house: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "program.py").write_text(programs.TORCH)
    cache = house / "cache"
    command = [sys.executable, str(tmp_path / "program.py")]
    done = replay(kept(command, tmp_path, cache, name).snapshots[0], cache)
    print(shown(done))
    assert (done.wrong, done.unstable) == (0, 0), shown(done)
    assert done.changed > 0


def test_a_triton_launch_is_replayed_to_the_bit(house: Path, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(programs.OPS)
    (tmp_path / "train.py").write_text(programs.STEP)
    cache = house / "cache"
    command = [sys.executable, str(tmp_path / "train.py")]
    done = replay(kept(command, tmp_path, cache, "scale_rows_kernel", launch=5).snapshots[0], cache)
    print(shown(done))
    assert (done.wrong, done.unstable) == (0, 0), shown(done)


def test_a_kernel_that_races_is_nondeterministic(program: Path, house: Path, tmp_path: Path) -> None:
    cache = house / "cache"
    done = replay(kept([str(program)], tmp_path, cache, "racing_sum").snapshots[0], cache)
    print(shown(done), done.atomics)
    assert done.unstable > 0, shown(done)
    if find_tool("nvdisasm") is not None:
        assert done.atomics


def test_other_machine_code_is_compared_and_timed(
    program: Path, house: Path, tmp_path: Path, gpu: Gpu, kernel_lsp: CommandLine
) -> None:
    snapshot = kept([str(program)], tmp_path, house / "cache", "batched").snapshots[0]
    same = programs.compiled(tmp_path, gpu, "same.cubin", "-cubin", "-Xptxas=-O1")
    wrong = programs.compiled(tmp_path, gpu, "wrong.cubin", "-cubin", "-DFACTOR=3.0f")
    for cubin, code, wanted in ((same, 0, "Equal"), (wrong, 4, "Different")):
        process = kernel_lsp("capture", "--cubin", str(cubin), "replay", str(snapshot.folder), COLUMNS="160")
        printed, told = process.communicate(timeout=120)
        print(printed)
        assert process.returncode == code, printed + told
        assert wanted in printed


def test_launches_of_cuda_graphs_are_counted(house: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(programs.GRAPH)
    found = capture_program([sys.executable, str(tmp_path / "program.py")], tmp_path, cache=house / "cache")
    sines = [kernel for kernel in found.seen.on_device.kernels if "sin_kernel" in kernel.name]
    assert sum(kernel.in_graphs for kernel in sines) == 40, said(found)
    assert sum(kernel.launches for kernel in sines) == 43, said(found)


def test_a_program_that_is_killed_keeps_its_times(program: Path, house: Path, tmp_path: Path) -> None:
    found = capture_program([str(program), "20", "killed"], tmp_path, cache=house / "cache")
    assert found.code == -6
    assert sum(kernel.launches for kernel in found.seen.on_device.kernels) == 4 * 22 + 1, said(found)


def test_a_captured_run_is_bit_for_bit_that_of_one_that_is_not(
    program: Path, kernel_lsp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    (tmp_path / "ops.py").write_text(programs.OPS)
    (tmp_path / "train.py").write_text(programs.STEP)
    for command, kernel in (([sys.executable, "train.py"], "scale_rows"), ([str(program)], "batched")):
        plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert plain.stdout, plain.stderr
        for options in ((), ("--snapshot", kernel)):
            process = kernel_lsp("capture", *options, "--", *command, COLUMNS="200")
            printed, told = process.communicate(timeout=240)
            assert (printed, process.returncode) == (plain.stdout, plain.returncode), told
            assert "Shares are of GPU time." in told, told
            if options:
                (folder,) = tmp_path.glob(f".kernel-lsp/captures/{kernel}*.snapshot")
                assert kernel in read_snapshot(folder).symbol


def test_recording_costs_little() -> None:
    """Figures of a quiet machine are those of `python -m tests.bench.capture_overhead --record`; this one is short."""
    figures = measure(launches=5000, steps=60, rounds=3)
    print(figures)
    assert figures["times_us_a_launch"] <= GOAL_US
    assert figures["times_percent_of_a_step"] <= 2 * GOAL_PERCENT, "twice the goal, for a short run beside others"
