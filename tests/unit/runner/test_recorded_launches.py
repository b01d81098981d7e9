"""Launches are kept with the memory that they reach, and repeated by the driver's calls alone."""

import ctypes
import json
import signal
import struct
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")

from kernel_lsp.device.arguments import LaunchShape  # noqa: E402 - after what it needs
from kernel_lsp.runner.workers import recorder as recording  # noqa: E402
from kernel_lsp.runner.workers import replay  # noqa: E402

SHAPE = LaunchShape((2, 1, 1), (32, 1, 1), 0)


@pytest.fixture
def recorder(monkeypatch):
    """A recorder for tensors on the CPU."""
    copy = types.SimpleNamespace(cuMemcpyDtoH=lambda to, start, n: (ctypes.memmove(to, start, n), None)[1:])
    monkeypatch.setattr(recording, "cu", copy)
    monkeypatch.setattr(recording, "check", lambda *_: None)
    monkeypatch.setattr(recording.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(recording.Tensor, "is_cuda", True)
    return recording.LaunchRecorder()


def pointer(tensor, elements: int = 0) -> bytes:
    return struct.pack("<Q", tensor.data_ptr() + elements * tensor.itemsize)


def kept(recorder, folder) -> dict:
    recorder.save(folder / "launches.json")
    return json.loads((folder / "launches.json").read_text())


def test_memory_that_nothing_has_written_to_is_kept_without_content(recorder, tmp_path):
    x, y = torch.arange(8.0), torch.empty(8)
    recorder.launch(b"elf", "early", SHAPE, [pointer(x)], [x])
    recorder.begin([x, 3])
    recorder.allocated(y, False)
    recorder.launch(b"elf", "k", SHAPE, [pointer(x, 2), pointer(y), struct.pack("<i", 8)], [x, y, 8])
    recorder.launch(b"elf", "k", SHAPE, [pointer(y)], [y])
    told = kept(recorder, tmp_path)
    first, second = told["launches"]
    assert first["memories"] == [[32, 0], [32, None]]
    assert first["arguments"][:2] == [{"memory": 0, "offset": 8}, {"memory": 1, "offset": 0}]
    assert second["memories"] == [[32, 1]], "the first launch may have written to it"
    assert len(told["images"]) == 1
    assert len(told["data"]) == 2


def test_what_torch_wrote_has_content(recorder, tmp_path):
    y = torch.empty(8)
    recorder.begin([])
    recorder.allocated(y, False)
    recorder.written(y)
    recorder.launch(b"elf", "k", SHAPE, [pointer(y)], [y])
    assert kept(recorder, tmp_path)["launches"][0]["memories"] == [[32, 0]]


def test_too_much_memory_is_not_kept(recorder, monkeypatch):
    monkeypatch.setattr(recording, "_MOST_BYTES", 31)
    x = torch.arange(8.0)
    recorder.begin([x])
    with pytest.raises(recording.NotRepeatableError, match="reach more than"):
        recorder.launch(b"elf", "k", SHAPE, [pointer(x)], [x])


@pytest.mark.usefixtures("recorder")
def test_launches_after_the_recorded_runs_are_made_and_not_kept(tmp_path, monkeypatch):
    """A launcher that Triton made meanwhile keeps the recorder; sizes that are run later reach much more memory."""
    monkeypatch.chdir(tmp_path)
    x, listeners, heard = torch.arange(8.0), [], []

    def run() -> None:
        heard[:] = listeners
        listeners[0](b"elf", "k", SHAPE, [pointer(x)], [x])

    kept_in = recording.record_launches([([x], run)], listeners, triton=False)
    assert len(json.loads((tmp_path / kept_in.file).read_text())["launches"]) == 1
    assert listeners == []
    monkeypatch.setattr(recording, "_MOST_BYTES", 31)
    heard[0](b"elf", "k", SHAPE, [pointer(x)], [x])


def test_a_recorded_launch_is_repeated_by_the_driver(recorder, tmp_path, monkeypatch):
    x, y = torch.arange(8.0), torch.empty(8)
    recorder.begin([x])
    recorder.allocated(y, False)
    recorder.launch(b"elf", "k", SHAPE, [pointer(x, 2), pointer(y), struct.pack("<i", 8)], [x, y, 8])
    kept(recorder, tmp_path)
    calls: list[tuple] = []

    class Driver:
        def __getattr__(self, name: str):
            def call(*arguments: object) -> int:
                calls.append((name, arguments))
                if name == "cuMemAlloc_v2":
                    arguments[0]._obj.value = 0x1000 * sum(made == name for made, _ in calls)
                if name == "cuLaunchKernel":
                    pointers = arguments[9]
                    seen.append([ctypes.c_uint64.from_address(pointers[i]).value for i in range(2)])
                    seen.append(ctypes.c_int32.from_address(pointers[2]).value)
                return 0

            return call

    seen: list[object] = []
    monkeypatch.setattr(replay.ctypes, "CDLL", lambda _: Driver())
    replay.main(str(tmp_path / "launches.json"))
    assert seen == [[0x1000 + 8, 0x2000], 8]
    copied = [arguments for name, arguments in calls if name == "cuMemcpyHtoD_v2"]
    assert [(to.value, data) for to, data, _ in copied] == [(0x1000, x.numpy().tobytes())]


def test_a_failing_call_ends_the_program_with_its_name(tmp_path, monkeypatch):
    (tmp_path / "f.json").write_text(json.dumps({"images": [], "data": [], "launches": []}))
    monkeypatch.setattr(replay.ctypes, "CDLL", lambda _: types.SimpleNamespace(cuInit=lambda *_: 100))
    with pytest.raises(SystemExit, match="cuInit failed: CUDA error 100"):
        replay.main(str(tmp_path / "f.json"))


_WAITS = """
from kernel_lsp.runner.workers import replay

class Driver:
    def __getattr__(self, name):
        return lambda *_: 0

replay.ctypes.CDLL = lambda _: Driver()
replay._repeat = lambda path, driver: print("repeats", path, flush=True)
replay.wait()
"""


def waiting() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it kills its group
    )


def test_a_program_that_waits_says_who_it_is_and_is_told_a_file():
    with waiting() as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == f"ready {program.pid}\n"
        program.stdin.write("/the launches\n")
        program.stdin.flush()
        assert program.stdout.readline() == "repeats /the launches\n"
        assert program.wait(timeout=60) == 0


def test_it_ends_with_its_parent():
    with waiting() as program:
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(timeout=60) == -signal.SIGKILL
