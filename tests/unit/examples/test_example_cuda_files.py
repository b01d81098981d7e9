"""The CUDA examples hold together without a GPU: workloads run, kernels compile, and each launch fits its kernel.

Nothing is launched here. Cases are made on PyTorch's meta device, so that the large ones cost no memory; only the
first, smallest case holds numbers.
"""

import inspect
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from torch.overrides import TorchFunctionMode  # noqa: E402

FOLDER = Path(__file__).parents[3] / "examples" / "cuda"
FOR_HOPPER = ("triad", "wgmma_gemm")  # their tensor maps and bulk copies need a pretended driver: tests of the emulator
KERNELS = sorted(path for path in FOLDER.glob("*.cu") if path.stem not in FOR_HOPPER)
ARCHES = (80, 90, 120)
SHARED_LIMIT = 48 * 1024
GRID_LIMIT = (2**31 - 1, 65535, 65535)


class CudaOn(TorchFunctionMode):
    """Where a program asks for the device "cuda", give it another one."""

    def __init__(self, device):
        self.device = device

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = self.device
        return function(*args, **kwargs)


class Launch(NamedTuple):
    kernel: str
    grid: tuple
    block: tuple
    shared_bytes: int
    arguments: tuple


class Recorder:
    """Stands for the kernel file in `launch`: notes what would be launched."""

    def __init__(self):
        self.launches = []

    def __getattr__(self, name):
        return RecordedKernel(name, self.launches)

    def __getitem__(self, name):
        return RecordedKernel(name, self.launches)


@dataclass
class RecordedKernel:
    name: str
    launches: list

    def __getitem__(self, configuration):
        grid, block, *shared = configuration
        return lambda *arguments: self.launches.append(Launch(self.name, grid, block, sum(shared), arguments))


class Entry(NamedTuple):
    parameters: list  # PTX types: u64, u32, f32
    shared_bytes: int


def device_code(path):
    """The file's device part: in a torch extension all host code stands after the kernels."""
    text = path.read_text()
    if "PYBIND11_MODULE" in text:
        text = text[: text.index("\ntorch::Tensor")]
        text = re.sub(r"^#include <(torch|ATen|c10)/.*$", "", text, flags=re.M)
    return text


def compile_ptx(path, names, architecture):
    """The PTX entries of a kernel file by the names that launches use."""
    import nvidia.cu13

    headers = Path(nvidia.cu13.__path__[0]) / "include"
    options = [
        f"--gpu-architecture=compute_{architecture}",
        "--std=c++17",
        f"-I{headers}",
        "-DINFINITY=__int_as_float(0x7f800000)",  # NVRTC has no host headers to take it from
    ]
    _, program = nvrtc.nvrtcCreateProgram(device_code(path).encode(), path.name.encode(), 0, [], [])
    for name in names:
        nvrtc.nvrtcAddNameExpression(program, name.encode())
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    log = read_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log
    assert not log, log
    ptx = read_text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    return {name: read_entry(ptx, nvrtc.nvrtcGetLoweredName(program, name.encode())[1].decode()) for name in names}


def read_text(size_of, read, program):
    _, size = size_of(program)
    buffer = bytearray(size)  # the binding writes into it
    read(program, buffer)
    return buffer.rstrip(b"\0").decode()


def read_entry(ptx, symbol):
    found = re.search(rf"\.entry {re.escape(symbol)}\((.*?)\)(.*?)^\}}", ptx, re.S | re.M)
    assert found, f"no entry {symbol}"
    shared = sum(int(size) for size in re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", found[2]))
    return Entry(re.findall(r"\.param \.(\w+)", found[1]), shared)


@pytest.fixture(params=KERNELS, ids=lambda path: path.stem)
def kernel(request):
    return request.param


@pytest.fixture
def workload(kernel):
    return SimpleNamespace(**runpy.run_path(str(kernel.with_name(f"{kernel.stem}_workload.py"))))


def on_device(workload, device, case):
    with CudaOn(device):
        return workload.inputs(**case)


def record(workload, device, case):
    recorder = Recorder()
    with CudaOn(device):
        returned = workload.launch(recorder, *workload.inputs(**case))
    return recorder.launches, outputs(returned)


def outputs(returned):
    return returned if isinstance(returned, tuple) else (returned,)


def footprint(workload, case):
    """Bytes of a case's inputs and outputs, each tensor once."""
    with CudaOn("meta"):
        values = workload.inputs(**case)
        made = outputs(workload.launch(Recorder(), *values))
    distinct = {id(tensor): tensor for tensor in (*values, *made)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


def test_there_are_examples():
    assert len(KERNELS) >= 14
    assert sum("PYBIND11_MODULE" in path.read_text() for path in KERNELS) == 1


def test_workload_has_the_parts_and_one_signature(workload):
    assert 3 <= len(workload.CASES) <= 5
    reference = list(inspect.signature(workload.reference).parameters)
    assert list(inspect.signature(workload.launch).parameters) == ["module", *reference]
    assert set(workload.CONTRACT.get("mutates", ())) <= set(reference)
    for case in workload.CASES:
        inspect.signature(workload.inputs).bind(**case)


def test_every_case_makes_tensors_for_every_parameter(workload):
    parameters = inspect.signature(workload.reference).parameters
    for case in workload.CASES:
        values = on_device(workload, "meta", case)
        assert isinstance(values, tuple)
        assert len(values) == len(parameters)
        assert all(isinstance(value, torch.Tensor) and value.is_contiguous() for value in values)


def test_first_case_is_the_smallest_and_one_is_too_large_for_caches(workload):
    sizes = [footprint(workload, case) for case in workload.CASES]
    assert sizes[0] == min(sizes) < 2**20
    assert 2**25 <= max(sizes) <= 2**30


def test_reference_keeps_the_outputs_form_in_its_own_and_in_double_precision(workload):
    torch.manual_seed(0)
    case = workload.CASES[0]
    values = on_device(workload, "cpu", case)
    _, launched = record(workload, "cpu", case)
    before = [value.clone() for value in values]
    right = outputs(workload.reference(*values))
    assert all(torch.equal(value, old) for value, old in zip(values, before, strict=True))
    wide = outputs(workload.reference(*(value.double() if value.is_floating_point() else value for value in values)))
    for plain, output, double in zip(right, launched, wide, strict=True):
        assert (plain.dtype, plain.shape, plain.stride()) == (output.dtype, output.shape, output.stride())
        assert double.dtype == (torch.float64 if plain.is_floating_point() else plain.dtype)
        tolerance = 1e-2 if plain.dtype == torch.float16 else 1e-4
        torch.testing.assert_close(plain.double(), double.double(), atol=tolerance, rtol=tolerance)
        assert double.double().std() > 0


def test_launches_fit_the_device(workload):
    for case in workload.CASES:
        launches, _ = record(workload, "meta", case)
        assert launches
        for launch in launches:
            assert len(launch.grid) <= 3
            assert all(0 < size <= limit for size, limit in zip(launch.grid, GRID_LIMIT, strict=False))
            threads = 1
            for size in launch.block:
                threads *= size
            assert threads % 32 == 0
            assert threads <= 1024


@pytest.mark.parametrize("architecture", ARCHES)
def test_kernels_compile_without_a_warning_and_take_what_the_launch_gives(kernel, workload, architecture):
    launches = [launch for case in workload.CASES for launch in record(workload, "meta", case)[0]]
    entries = compile_ptx(kernel, sorted({launch.kernel for launch in launches}), architecture)
    for launch in launches:
        entry = entries[launch.kernel]
        assert entry.shared_bytes + launch.shared_bytes <= SHARED_LIMIT
        assert len(launch.arguments) == len(entry.parameters)
        for value, kind in zip(launch.arguments, entry.parameters, strict=True):
            if isinstance(value, torch.Tensor):
                assert kind == "u64"
            elif isinstance(value, float):
                assert kind == "f32"
            else:
                assert kind in ("u32", "u64")
                assert -(2**31) <= value < 2**31
