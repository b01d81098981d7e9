"""Times the example `wgmma_gemm.cu` beside cuBLAS: `python -m tests.bench.product_against_cublas`.

Both compute `a @ b.T` in half precision, by turns, each from a CUDA graph; sizes are those of square matrices. A row's
`share` is cuBLAS's time over ours, from the medians. Options: --sizes N ... (4096 8192); --rounds N (15), of ten
products each; --record keeps the result. It needs an sm_90 GPU.
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from tests.bench.record import record

NAME = "product_against_cublas"
EXAMPLE = Path(__file__).parents[2] / "examples" / "cuda" / "wgmma_gemm.cu"
TIMES = 10  # products between two looks at the clock


def checked(result: tuple[Any, ...]) -> Any:
    """Return what a call of the driver or of NVRTC gave; raise what it says went wrong."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"{type(status).__name__}: {status.name}")
    return values[0] if values else None


def compiled(text: str) -> bytes:
    """Return the machine code of a CUDA text for sm_90a."""
    from cuda.bindings import nvrtc

    plain = text.replace("#include <cstdint>", "using uint32_t = unsigned; using uint64_t = unsigned long long;")
    program = checked(nvrtc.nvrtcCreateProgram(plain.encode(), EXAMPLE.name.encode(), 0, [], []))
    options = [b"-arch=sm_90a", b"-std=c++17", *(f"-I{folder}".encode() for folder in headers())]
    status = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status[0]):
        log = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    cubin = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return bytes(cubin)


def headers() -> list[Path]:
    """Return the folders of CUDA's headers that Python packages bring."""
    found = importlib.util.find_spec("nvidia.cu13")
    return [Path(folder) / "include" for folder in (found.submodule_search_locations or [])] if found else []


class Launcher:
    """Stands for a compiled file in a workload's `launch`: `module.kernel[grid, block, shared](...)`."""

    def __init__(self, cubin: bytes):
        from cuda.bindings import driver

        self._driver = driver
        self._module = checked(driver.cuModuleLoadData(cubin))

    def __getattr__(self, name: str) -> Any:
        function = checked(self._driver.cuModuleGetFunction(self._module, name.encode()))
        return _Configured(self._driver, function)


class _Configured:
    def __init__(self, driver: ModuleType, function: Any):
        self._driver, self._function = driver, function

    def __getitem__(self, configuration: tuple[int, int, int]) -> Callable[..., None]:
        import ctypes

        import torch

        grid, block, shared = configuration
        most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(self._driver.cuFuncSetAttribute(self._function, most, shared))

        def launch(*given: Any) -> None:
            kinds = tuple(ctypes.c_int if isinstance(one, int) else None for one in given)
            stream = torch.cuda.current_stream().cuda_stream
            size = (grid, 1, 1, block, 1, 1, shared)
            checked(self._driver.cuLaunchKernel(self._function, *size, stream, (given, kinds), 0))

        return launch


def graph_of(work: Callable[[], Any]) -> Callable[[], None]:
    """Return what replays `TIMES` runs of some work."""
    import torch

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(TIMES):
            work()
    return graph.replay


def milliseconds(replay: Callable[[], None]) -> float:
    """Return how long one of the replayed runs takes."""
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    replay()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / TIMES


def row_of(size: int, rounds: int, module: Launcher, launch: Callable[..., Any]) -> dict[str, float | int]:
    """Return the times of square matrices of a size.

    Raises:
        ArithmeticError: the products differ.
    """
    import torch

    torch.manual_seed(size)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    ours, theirs = launch(module, a, b), a @ b.T
    if not torch.allclose(ours.float(), theirs.float(), atol=0.25, rtol=1e-2):
        raise ArithmeticError(f"the product of {size} x {size} is wrong by {(ours - theirs).abs().max().item()}")
    replays = graph_of(lambda: launch(module, a, b)), graph_of(lambda: a @ b.T)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 3):
        for found, replay in zip(times, replays, strict=True):
            found.append(milliseconds(replay))
    mine, its = (median(found[3:]) for found in times)  # the first rounds warm up
    teraflops = 2 * size**3 / mine / 1e9
    return {"size": size, "ours_ms": mine, "cublas_ms": its, "share": its / mine, "ours_teraflops": teraflops}


def main() -> None:
    """Time the sizes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")  # a context for the driver's calls
    specification = importlib.util.spec_from_file_location("workload", EXAMPLE.with_name("wgmma_gemm_workload.py"))
    assert specification is not None
    assert specification.loader is not None
    workload = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(workload)
    module = Launcher(compiled(EXAMPLE.read_text()))
    rows = [row_of(size, options.rounds, module, workload.launch) for size in options.sizes]
    for row in rows:
        print(", ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    if options.record:
        print(record(NAME, {"rows": rows}))


if __name__ == "__main__":
    main()
