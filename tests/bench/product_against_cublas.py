"""Times an example's product beside cuBLAS: `python -m tests.bench.product_against_cublas`.

Both compute `a @ b.T` in half precision (`wgmma_gemm.cu`), or with --example sgemm `a @ b` in float32, without TF32; by
turns, each from a CUDA graph; sizes are those of square matrices. A row's `share` is cuBLAS's time over ours, from the
medians. Options: --example NAME; --variant FOLDER with the files of the example as `kernel-lsp refine` changed them
(`refine_examples --variants`); --sizes N ... (4096 8192); --rounds N (15), of ten products each; --record keeps the
result. It needs an sm_90 GPU.
"""

import argparse
import ctypes
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from tests.bench.record import record

NAME = "product_against_cublas"
EXAMPLES = Path(__file__).parents[2] / "examples" / "cuda"
PRODUCTS = {"wgmma_gemm": "float16", "sgemm": "float32"}
ERRORS = {"float16": 0.25, "float32": 1e-2}
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
    program = checked(nvrtc.nvrtcCreateProgram(plain.encode(), b"product.cu", 0, [], []))
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

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        import torch

        grid, block = (_three(one) for one in configuration[:2])
        shared = configuration[2] if len(configuration) > 2 else 0
        most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(self._driver.cuFuncSetAttribute(self._function, most, shared))

        def launch(*given: Any) -> None:
            values = tuple(one.data_ptr() if isinstance(one, torch.Tensor) else one for one in given)
            kinds = tuple(_kind(one) for one in given)
            stream = torch.cuda.current_stream().cuda_stream
            checked(self._driver.cuLaunchKernel(self._function, *grid, *block, shared, stream, (values, kinds), 0))

        return launch


def _kind(given: Any) -> Any:
    """Return the type of an argument of a launch; None for one that knows its own, as a tensor map."""
    if isinstance(given, int):
        return ctypes.c_int
    return ctypes.c_void_p if hasattr(given, "data_ptr") else None


def _three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    """Return a size along all three axes."""
    x, y, z = (*(size if isinstance(size, tuple) else (size,)), 1, 1)[:3]
    return x, y, z


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


def row_of(size: int, rounds: int, kind: str, ours_on: Callable[..., Any]) -> dict[str, float | int]:
    """Return the times of square matrices of a size, whose elements are of a kind.

    Raises:
        ArithmeticError: the products differ.
    """
    import torch

    torch.manual_seed(size)
    a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, kind)) for _ in range(2))
    right = b.T if kind == "float16" else b
    ours, theirs = ours_on(a, b), a @ right
    if not torch.allclose(ours.float(), theirs.float(), atol=ERRORS[kind], rtol=1e-2):
        raise ArithmeticError(f"the product of {size} x {size} is wrong by {(ours - theirs).abs().max().item()}")
    replays = graph_of(lambda: ours_on(a, b)), graph_of(lambda: a @ right)
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
    parser.add_argument("--example", choices=PRODUCTS, default="wgmma_gemm")
    parser.add_argument("--variant", type=Path, default=EXAMPLES)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")  # a context for the driver's calls
    torch.backends.cuda.matmul.allow_tf32 = False
    name = options.example
    workload_file = options.variant / f"{name}_workload.py"
    specification = importlib.util.spec_from_file_location("workload", workload_file)
    assert specification is not None
    assert specification.loader is not None
    workload = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(workload)
    ours = partial(workload.launch, Launcher(compiled((options.variant / f"{name}.cu").read_text())))
    rows = [row_of(size, options.rounds, PRODUCTS[name], ours) for size in options.sizes]
    for row in rows:
        print(", ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    if options.record:
        print(record(NAME if name == "wgmma_gemm" else f"{NAME}_{name}", {"rows": rows}))


if __name__ == "__main__":
    main()
