"""A trace holds what the GPU did, or says why there is none; it does not import torch's compiler."""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pytest

torch = pytest.importorskip("torch")

from kernel_lsp.runner.workers import tracer  # noqa: E402 - after what it needs


class Profiler:
    """Stands for torch's: it saves a trace of one kernel, a copy, and an event of the host."""

    def __init__(self, **asked: object) -> None:
        assert asked == {"use_device": "cuda", "use_cpu": False, "use_kineto": True}

    def __enter__(self) -> object:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        pass

    def export_chrome_trace(self, path: str) -> None:
        kernel = {"stream": 7, "grid": [4, 1, 1], "block": [128, 1, 1]}
        events = [
            {"name": "softmax", "cat": "kernel", "ts": 10.0, "dur": 2.5, "args": kernel},
            {"name": "Memcpy", "cat": "gpu_memcpy", "ts": 13.0, "dur": 1.0, "args": {"stream": 7, "bytes": 64}},
            {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": 9.0, "dur": 1.0, "args": {}},
        ]
        Path(path).write_text(json.dumps({"traceEvents": events}))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracer, "_synchronize", lambda: None)


def test_operations_of_the_gpu_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_profile", Profiler)
    done, operations, failed = tracer.trace(lambda: "done")
    assert (done, failed) == ("done", "")
    assert [(one.kind, one.name, one.stream, one.grid, one.nbytes) for one in operations] == [
        ("kernel", "softmax", 7, (4, 1, 1), None),
        ("memcpy", "Memcpy", 7, None, 64),
    ]
    assert list(tmp_path.iterdir()) == [], "its file is gone"


class Refusing(Profiler):
    """A profiler that somebody else uses already."""

    def __enter__(self) -> object:
        raise RuntimeError("profiling is under way")


def unsupported(**_: object) -> Profiler:
    raise AssertionError("no CUPTI")


@pytest.mark.parametrize(("profiler", "why"), [(Refusing, "profiling is under way"), (unsupported, "no CUPTI")])
def test_work_is_done_without_a_trace_too(profiler: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "_profile", profiler)
    assert tracer.trace(lambda: "done") == ("done", (), why)


_PROGRAM = """
import sys
from kernel_lsp.runner.workers import tracer
with tracer._profile(use_device="cuda", use_cpu=True, use_kineto=True):
    pass
print("torch._inductor" in sys.modules, "torch._dynamo" in sys.modules)
"""


def test_a_trace_does_without_torchs_compiler() -> None:
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == ["False", "False"], ran.stderr
