"""Finds the compilers and tools on this machine, without importing torch or triton."""

import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from kernel_lsp.compiler.toolchain.toolkit import find_tool, toolkit_folders

_PACKAGES = {
    "torch": "torch",
    "triton": "triton",
    "cuda-bindings": "cuda-bindings",
    "nvrtc": "nvidia-cuda-nvrtc",
    "vllm": "vllm",
}
_COMPILING = (*_PACKAGES.values(), "nvidia-cuda-runtime", "nvidia-cuda-cccl", "numpy")
# nvcc's pattern fits the output of every tool of the toolkit: `release 13.0, V13.0.88` or `Version 2025.3.1.0`.
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)|[Vv]ersion:? v?(\d+(?:\.\d+)+)")
_TOOLS = ("nvcc", "ptxas", "nvdisasm", "ncu", "compute-sanitizer")
_DRIVER = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)")
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_TIMEOUT = 20.0  # seconds; a tool on a network file system can be slow to start


@dataclass(frozen=True, slots=True)
class Tool:
    """One piece of the toolchain.

    Attributes:
        name: `nvrtc`, `nvcc`, `ptxas`, `nvdisasm`, `ncu`, `compute-sanitizer`, `torch`, `triton`, `cuda-bindings`,
            `driver` or `vllm`.
        version: as it reports itself; None if it is not here.
        path: the program, or the folder of the package.
    """

    name: str
    version: str | None
    path: Path | None

    @property
    def present(self) -> bool:
        """Return True if it was found and reports a version."""
        return self.version is not None


@lru_cache
def find_toolchain() -> dict[str, Tool]:
    """Return every tool by name. Takes some 0.1 s, since programs are asked for their versions; the result is kept."""
    found = [_package(name, package) for name, package in _PACKAGES.items()]
    found += [_program(name) for name in _TOOLS]
    tools = {tool.name: tool for tool in (*found, _driver())}
    if not tools["nvrtc"].present:
        tools["nvrtc"] = _toolkit_nvrtc()
    return tools


def versions() -> dict[str, str]:
    """Return name and version of every tool that is installed, for the record."""
    return {tool.name: tool.version for tool in find_toolchain().values() if tool.version is not None}


def tool(name: str) -> Tool:
    """Return one tool; see `Tool.name`. Looks for no other.

    Raises:
        KeyError: no such piece is known.
    """
    if name in _TOOLS:
        return _program(name)
    if name == "driver":
        return _driver()
    found = _package(name, _PACKAGES[name])
    return _toolkit_nvrtc() if name == "nvrtc" and not found.present else found


@lru_cache
def package_versions() -> dict[str, str]:
    """Return the versions of the Python packages that compile and run kernels; starts no program."""
    found: dict[str, str] = {}
    for package in _COMPILING:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _package(name: str, package: str) -> Tool:
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return Tool(name, None, None)
    return Tool(name, found.version, Path(str(found.locate_file(""))))


@lru_cache
def _program(name: str) -> Tool:
    path = find_tool(name)
    if path is None:
        return Tool(name, None, None)
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Tool(name, None, path)
    said = _VERSION.search(done.stdout + done.stderr)
    return Tool(name, (said[1] or said[2]) if said and done.returncode == 0 else None, path)


def _toolkit_nvrtc() -> Tool:
    for folder in toolkit_folders():
        for library in sorted(folder.glob("lib64/libnvrtc.so.*"), key=lambda path: len(path.name), reverse=True):
            return Tool("nvrtc", library.name.removeprefix("libnvrtc.so."), library)
    return Tool("nvrtc", None, None)


def _driver() -> Tool:
    try:
        said = _DRIVER.search(_DRIVER_FILE.read_text())
    except OSError:
        said = None
    if said is None:
        return Tool("driver", None, None)
    smi = shutil.which("nvidia-smi")
    return Tool("driver", said[1], Path(smi) if smi else _DRIVER_FILE)
