"""The cache key of a build: a hash of all inputs, computed without a compiler and without running the user's code.

With it the parent process recognises an unchanged file in about a millisecond, before any worker starts.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_lsp import __version__
from kernel_lsp.compiler.headers.definitions import build_scripts
from kernel_lsp.compiler.headers.includers import including_files
from kernel_lsp.compiler.headers.project import include_folders
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.toolchain.file_cache import cache_key
from kernel_lsp.compiler.toolchain.toolkit import find_tool, header_folders
from kernel_lsp.device.device import Device
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import cuda_part
from kernel_lsp.source.imports import folders_of, local_imports
from kernel_lsp.source.language import language_packages, source_part
from kernel_lsp.workload.spec import WorkloadFile

_CUDA_PACKAGES = ("cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
_PACKAGE = Path(__file__).parents[2]
_IMPORTABLE = ("numpy", *language_packages())


def build_keys(
    candidate: Candidate,
    workload: WorkloadFile | None,
    device: Device,
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
) -> tuple[str, str] | None:
    """Return two cache keys of a candidate's build: one over the device code alone, one over the whole file.

    The first is for builds that no host code can change, which are all but compilations of whole files. For Triton both
    are the same.

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
    if source_part(candidate.language).python:
        python.append(kernel)
    language = compiler_part(candidate.language)
    parts += map(_versioned, language.packages)
    code = language.device_code(kernel.text)
    if language.includes_headers:
        alone = workload is None and candidate.launch is None
        folders = include_folders((cuda_part(kernel),), include_dirs, anywhere=alone)
        parts += (str(len(options)), *options, *(str(folder.absolute()) for folder in folders), "headers")
        for header in user_headers(cuda_part(kernel), folders):
            parts += (header.name, str(header.path), header.text)
        for file in including_files(kernel, include_dirs):
            parts += (str(file.path), file.text)
        if workload is None:  # then macros are taken from these
            parts += map(_stamp, build_scripts(kernel.path))
    folders = folders_of(*python)
    for source in python:
        neighbours = local_imports(source, folders, _IMPORTABLE)
        if neighbours is None:
            return None
        for file in (source, *neighbours):
            parts += (str(file.path.absolute()), file.text)
    whole = "" if source_part(candidate.language).python else kernel.text
    return cache_key((*parts, code)), cache_key((*parts, "whole", whole))


@lru_cache
def _toolchain() -> tuple[str, ...]:
    """Return name and version of every compiler and library; of files without a version path, size and time."""
    found = [f"kernel-lsp {__version__}", sys.version]
    found += map(_versioned, (*_IMPORTABLE, *_CUDA_PACKAGES))
    found += [str(folder) for folder in header_folders()]
    return (*found, *_stamps())


def _versioned(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def _stamps() -> Iterator[str]:
    nvcc = find_tool("nvcc")
    # This package's own builders, and what cuts texts for them, count too: a checkout changes without a new version.
    for path in (
        *([nvcc] if nvcc else []),
        *sorted(_PACKAGE.glob("compiler/**/*.py")),
        *sorted(_PACKAGE.glob("languages/*/*.py")),
        *sorted(_PACKAGE.glob("source/*.py")),
    ):
        yield _stamp(path)


def _stamp(path: Path) -> str:
    """Return a file's path, size and time."""
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"
