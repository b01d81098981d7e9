"""Locates the parts of a CUDA toolkit on this machine: Python wheels first, then an installed toolkit."""

import os
import shutil
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import platformdirs

_TOOLKIT = Path("/usr/local/cuda")
_TRITON = Path("triton/backends/nvidia")
_FOR_TORCH = Path(__file__).parent / "torch_include"  # of headers that PyTorch has only where it was built with CUDA


def site_folders() -> tuple[Path, ...]:
    """Return the folders of installed packages, in the order of import."""
    candidates = [*sys.path, *site.getsitepackages(), site.getusersitepackages()]
    folders = dict.fromkeys(Path(name) for name in candidates if name.endswith(("site-packages", "dist-packages")))
    return tuple(folder for folder in folders if folder.is_dir())


def toolkit_folders() -> tuple[Path, ...]:
    """Return the roots of installed toolkits: CUDA_HOME, CUDA_PATH, the home of the `nvcc` on PATH, /usr/local/cuda."""
    named = [Path(value) for name in ("CUDA_HOME", "CUDA_PATH") if (value := os.environ.get(name))]
    nvcc = shutil.which("nvcc")
    if nvcc:
        named.append(Path(nvcc).resolve().parent.parent)
    return tuple(folder for folder in dict.fromkeys([*named, _TOOLKIT]) if folder.is_dir())


@lru_cache
def header_folders() -> tuple[Path, ...]:
    """Return the folders with CUDA's headers, best first; a header missing in one is found in the next.

    The wheel comes first because its version is that of the NVRTC wheel; Triton's copy is the last resort.
    """
    return tuple(dict.fromkeys(folder for folder in _header_candidates() if folder.is_dir()))


def torch_header_folders() -> tuple[Path, ...]:
    """Return the folders of PyTorch's headers and of Python's, which they include; none if PyTorch is missing."""
    for packages in site_folders():
        include = packages / "torch" / "include"
        if include.is_dir():
            return include, include / "torch/csrc/api/include", Path(sysconfig.get_path("include")), _FOR_TORCH
    return ()


def unpacked_headers() -> Path:
    """Return the folder where NVRTC's own headers are unpacked, in a subfolder for each version."""
    return platformdirs.user_cache_path("kernel-lsp") / "nvrtc-headers"


def _header_candidates() -> Iterator[Path]:
    for folder in site_folders():
        yield from sorted(folder.glob("nvidia/cu1[0-9]/include"), reverse=True)
        yield folder / "nvidia/cuda_runtime/include"
    for folder in toolkit_folders():
        yield folder / "include"
    # C++ standard headers for device code (`cuda/std`, `cub`) lie beside the others or one folder deeper.
    for folder in site_folders():
        yield from sorted(folder.glob("nvidia/cu1[0-9]/include/cccl"), reverse=True)
        yield folder / "nvidia/cuda_cccl/include"
    for folder in toolkit_folders():
        yield folder / "include/cccl"
    for folder in site_folders():
        yield folder / _TRITON / "include"


def find_tool(name: str) -> Path | None:
    """Return the program `name` (`nvcc`, `ptxas`, `ncu`, ...): on PATH, in a toolkit, in a wheel, or Triton's own."""
    return next(find_tools(name), None)


def find_tools(name: str) -> Iterator[Path]:
    """Yield every installed program `name`, in the order of `find_tool`."""
    if found := shutil.which(name):
        yield Path(found)
    folders = [folder / "bin" for folder in toolkit_folders()]
    for packages in site_folders():
        folders += sorted(packages.glob("nvidia/cu1[0-9]/bin"), reverse=True)
        folders += [packages / "nvidia/cuda_nvcc/bin", packages / _TRITON / "bin"]
    yield from (path for folder in folders if os.access(path := folder / name, os.X_OK))


def find_library(name: str) -> Path | None:
    """Return the newest shared library `lib{name}.so.N` of CUDA's: of a wheel, else of a toolkit."""
    folders: list[Path] = []
    for packages in site_folders():
        folders += sorted(packages.glob("nvidia/cu1[0-9]/lib"), reverse=True)
        folders.append(packages / f"nvidia/cuda_{name}/lib")
    for toolkit in toolkit_folders():
        folders += [toolkit / "lib64", toolkit / f"extras/{name.upper()}/lib64"]
    found = (sorted(folder.glob(f"lib{name}.so.[0-9][0-9]"), reverse=True) for folder in folders)
    return next((paths[0] for paths in found if paths), None)
