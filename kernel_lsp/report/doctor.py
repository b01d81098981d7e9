"""Shows the required tools that this machine has, and for each missing one its cost and its fix."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.check.ncu import may_read_counters
from kernel_lsp.compiler.toolchain.toolkit import find_library, toolkit_folders
from kernel_lsp.compiler.toolchain.tools import Tool, find_toolchain
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.report.units import size_text

_GPU_EXTRA = "pip install 'kernel-lsp[gpu]'"
_TOOLKIT = "sudo apt-get install cuda-toolkit"
_DRIVER = "sudo apt-get install nvidia-driver  # in a container: start it with --gpus all"


@dataclass(frozen=True, slots=True)
class Item:
    """One piece.

    Attributes:
        name: what it is.
        version: None where it is missing or does not say.
        detail: where it is, or what is special about it.
        found: whether it is here.
        cost: what cannot be done without it.
        fix: the command that brings it.
    """

    name: str
    found: bool
    version: str | None
    detail: str
    cost: str
    fix: str


_COSTS = {
    "nvrtc": ("CUDA files compile only where nvcc is installed", _GPU_EXTRA),
    "cuda-bindings": ("bare CUDA kernels cannot be launched", _GPU_EXTRA),
    "torch": ("no workload can run, so nothing is judged", _GPU_EXTRA),
    "triton": ("Triton kernels cannot be compiled or run", _GPU_EXTRA),
    "ptxas": ("spills of kernels that nvcc did not compile are not known", _GPU_EXTRA),
    "nvdisasm": ("machine code cannot be shown", _GPU_EXTRA),
    "nvcc": ("files that NVRTC refuses do not compile, and torch extensions cannot be built whole", _TOOLKIT),
    "compute-sanitizer": ("races and bad accesses are sought by guard regions and the emulator alone", _TOOLKIT),
    "ncu": ("`profile` says what lines execute and move, but not where the GPU waits", _TOOLKIT),
    "vllm": ("no local model; the tuner and the rewrites work without it", "in a clone: pip install -e 'server[vllm]'"),
}


def survey() -> list[Item]:
    """Look for everything; takes as long as the tools take to say their versions. Imports none of the packages."""
    tools = find_toolchain()
    return [*_gpus(), _toolkit(), *(_item(tools[name], *said) for name, said in _COSTS.items()), _cupti(), *_counters()]


def survey_view(items: list[Item]) -> RenderableType:
    """Return a table of the present tools, then the missing ones with cost and fix; print it with `crop=False`."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for item in items:
        mark = Text("✓", "green") if item.found else Text("✗", "yellow")
        table.add_row(
            mark,
            Text(item.name, "bold"),
            Text(item.version or ("" if item.found else "missing")),
            Text(item.detail, "dim", overflow="fold"),
        )
    missing: list[RenderableType] = []
    for item in items:
        if not item.found:
            fix = Text(f"  {item.fix}", "cyan", no_wrap=True, overflow="ignore")  # to be copied whole
            missing += [Text(), Text.assemble((item.name, "bold"), f": {item.cost}."), fix]
    return Group(table, *missing)


def _gpus() -> list[Item]:
    cost = "nothing can be timed; kernels are still compiled and checked, and no speedup is claimed"
    gpus = find_gpus()
    if gpus:
        driver = Item("NVIDIA driver", True, gpus[0].driver, "", cost, _DRIVER)
        return [
            driver,
            *(
                Item(f"GPU {g.index}", True, g.name, f"{g.arch}, {size_text(g.memory_bytes)}", cost, _DRIVER)
                for g in gpus
            ),
        ]
    if find_spec("pynvml") is None:
        return [Item("GPU", False, None, "not looked for: nvidia-ml-py is not installed", cost, _GPU_EXTRA)]
    return [Item("GPU", False, None, "no driver, or none that this process may use", cost, _DRIVER)]


def _cupti() -> Item:
    """Return the library through which `capture` times the kernels of a program."""
    cost = "`capture` ranks kernels by host time, and keeps no launch for a replay"
    found = find_library("cupti")
    version = None if found is None else found.suffix.removeprefix(".")
    return Item("libcupti", found is not None, version, str(found or ""), cost, "pip install nvidia-cuda-cupti")


def _counters() -> list[Item]:
    """Say where the driver keeps its counters from this user; nothing elsewhere."""
    if may_read_counters():
        return []
    fix = (
        "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
        "  # then start this machine anew"
    )
    return [Item("GPU counters", False, None, "for administrators alone", _COSTS["ncu"][0], fix)]


def _toolkit() -> Item:
    cost = "nvcc, ncu and compute-sanitizer come with it; NVRTC and Triton do without"
    for folder in toolkit_folders():
        if number := _toolkit_version(folder):
            return Item("CUDA toolkit", True, number, str(folder), cost, _TOOLKIT)
    return Item("CUDA toolkit", False, None, "", cost, _TOOLKIT)


def _toolkit_version(folder: Path) -> str | None:
    """Return the version in `version.json`, or the folder's name (`cuda-13.0`) if a package left that file out."""
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((folder / "version.json").read_text())["cuda"]["version"])
    number = re.fullmatch(r"cuda-([\d.]+)", folder.resolve().name)
    return number[1] if number else None


def _item(tool: Tool, cost: str, fix: str) -> Item:
    detail = "" if tool.path is None or tool.path.is_dir() else str(tool.path)
    if tool.path is not None and not tool.present:
        detail = f"{tool.path} does not answer"
    if tool.version is not None and tool.version.endswith("+cpu"):
        detail = "a build without CUDA: it cannot use a GPU"
    return Item(tool.name, tool.present, tool.version, detail, cost, fix)
