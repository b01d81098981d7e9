"""The address of a build: a hash of all that goes into it, taken without a compiler and without the user's code.

It lets the parent process tell that a file is unchanged before any worker is started, in about a millisecond.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_lsp import __version__
from kernel_lsp.compiler.cache import cache_key
from kernel_lsp.compiler.headers import user_headers
from kernel_lsp.compiler.includers import including_files
from kernel_lsp.compiler.toolkit import find_tool, header_folders
from kernel_lsp.device.device import Device
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import cuda_part
from kernel_lsp.source.imports import folders_of, local_imports
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.slicing import slice_device
from kernel_lsp.workload.spec import WorkloadFile

_CUDA_PACKAGES = ("cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
_IMPORTABLE = ("torch", "triton", "numpy")


def build_keys(
    candidate: Candidate,
    workload: WorkloadFile | None,
    device: Device,
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str] | None:
    """Addresses of what a build worker answers for a candidate: with the device code alone, and with the whole file.

    The first is for answers that no host code can change, which are all but those of whole-file compiles. They are the
    same for Triton.

    Args:
        candidate: what is built.
        workload: the workload that says how it is launched.
        device: the GPU to build for; how many blocks are launched may depend on all that it has.
        options: the user's compiler options.
        include_dirs: the user's include folders.
        variables: of the environment, that the user's code sees.

    Returns:
        None where the Python files involved import something whose content cannot be told.
    """
    kernel = candidate.kernel
    python = [workload.source] if workload else []
    if candidate.launch is not None:
        python.append(candidate.launch)
    parts = [str(candidate.language), repr(device), str(kernel.path.absolute()), *_toolchain()]
    parts += (f"{name}={value}" for name, value in sorted((variables or {}).items()))
    code = ""
    if candidate.language is not Language.CUDA:
        python.append(kernel)
    else:
        # Host code that follows the last kernel is all blanks in the slice: its length must not count.
        code = slice_device(kernel.text).rstrip()
    if candidate.language is not Language.TRITON:
        parts += (str(len(options)), *options, *(str(folder.absolute()) for folder in include_dirs), "headers")
        for header in user_headers(cuda_part(kernel), include_dirs):
            parts += (header.name, str(header.path), header.text)
        for file in including_files(kernel, include_dirs):
            parts += (str(file.path), file.text)
    folders = folders_of(*python)
    for source in python:
        neighbours = local_imports(source, folders, _IMPORTABLE)
        if neighbours is None:
            return None
        for file in (source, *neighbours):
            parts += (str(file.path.absolute()), file.text)
    whole = kernel.text if candidate.language is Language.CUDA else ""
    return cache_key((*parts, code)), cache_key((*parts, "whole", whole))


@lru_cache
def _toolchain() -> tuple[str, ...]:
    """All that compiles, by name and version; of what has none, by place, size and time."""
    found = [f"kernel-lsp {__version__}", sys.version]
    for package in (*_IMPORTABLE, *_CUDA_PACKAGES):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(package)
    found += [str(folder) for folder in header_folders()]
    return (*found, *_stamps())


def _stamps() -> Iterator[str]:
    nvcc = find_tool("nvcc")
    # This package's own builders count too, for a checkout changes without a new version.
    for path in (*([nvcc] if nvcc else []), *sorted(Path(__file__).parent.glob("*.py"))):
        status = path.stat()
        yield f"{path} {status.st_size} {status.st_mtime_ns}"
