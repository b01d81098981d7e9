"""A torch extension built whole, for workloads that call host functions of a `.cu` file. Worker processes only.

Slow (a minute is usual, for `torch/extension.h`), so a library is kept under the hash of all that made it.
"""

import fcntl
import os
import re
import shutil
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch.utils import cpp_extension

from kernel_lsp.build.binary import Build, Diagnostic, Severity
from kernel_lsp.build.cache import cache_key
from kernel_lsp.build.cuda import BuildOptions
from kernel_lsp.build.diagnostics import has_errors, parse_diagnostics
from kernel_lsp.build.headers import user_headers
from kernel_lsp.build.occupancy import base_arch
from kernel_lsp.build.toolchain import tool
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.source.candidate import SourceFile

_BINDS_ITSELF = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY|TORCH_LIBRARY_FRAGMENT|STABLE_TORCH_LIBRARY)\b")
_DEFAULTS = BuildOptions()


def build_torch_extension(
    source: SourceFile,
    arch: str,
    folder: Path,
    functions: Sequence[str] = (),
    options: BuildOptions = _DEFAULTS,
) -> tuple[Build, Path | None]:
    """Build a `.cu` file with its host code into a Python module.

    Args:
        source: the file and its text; relative includes start from its folder.
        arch: `sm_90` and the like.
        folder: where libraries are kept.
        functions: host functions to bind where the file binds none itself.
        options: compiler options and include folders.

    Returns:
        The build, whose `binary` is None because the machine code is inside the library, and the library: a shared
        object that is a Python module of the name of its stem; None if the build failed.

    Raises:
        CannotJudgeError: torch was built without CUDA, or there is no nvcc.
    """
    _require_compiler(source.path)
    headers = user_headers(source, options.include_dirs)
    bindings = "" if _BINDS_ITSELF.search(source.text) else _bindings(functions)
    key = cache_key(
        [
            str(source.path),
            source.text,
            bindings,
            arch,
            torch.__version__,
            tool("nvcc").version or "",
            *options.flags,
            *(part for header in headers for part in (header.name, header.text)),
        ]
    )
    name = f"kernel_lsp_{key[:20]}"
    directory = folder / name
    library, words = directory / f"{name}.so", directory / "complete.log"
    start = time.perf_counter()
    with _alone(folder / f"{name}.lock"):
        if words.is_file() and library.is_file():
            log = words.read_text(encoding="utf-8")
            return Build(None, (), "extension", 0.0, cached=True, log=log), library
        # Torch's own lock file has no owner: one that a killed build left behind would make every later one wait.
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        quoted = str(source.path).replace("\\", "\\\\").replace('"', '\\"')
        file = directory / f"{name}_source.cu"
        file.write_text(f'#line 1 "{quoted}"\n{source.text}\n{bindings}', encoding="utf-8")
        cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)  # else a failure is not tried again
        try:
            with mock.patch.dict(os.environ, {"TORCH_CUDA_ARCH_LIST": _arch_list(arch), "PATH": _path()}):
                cpp_extension.load(
                    name,
                    [str(file)],
                    build_directory=str(directory),
                    extra_include_paths=[str(path) for path in (source.path.parent, *options.include_dirs)],
                    # Not our default language standard: torch knows which one its headers need.
                    extra_cuda_cflags=["-lineinfo", *options.flags],
                )
        except (RuntimeError, ImportError, OSError) as error:
            log = str(error)
            own = {str(header.path): (str(header.path), header.text) for header in headers}
            found = parse_diagnostics(log, str(source.path), source.text, headers=own)
            if not has_errors(found):
                first = next((line for line in log.splitlines() if line.strip()), type(error).__name__)
                found = (Diagnostic(str(source.path), 1, 1, 1, 1, Severity.ERROR, first), *found)
            return Build(None, found, "extension", time.perf_counter() - start, log=log), None
        words.write_text("", encoding="utf-8")
    return Build(None, (), "extension", time.perf_counter() - start), library


def _require_compiler(path: Path) -> None:
    if torch.version.cuda is None:
        raise CannotJudgeError(
            "this file's host functions need a torch that was built with CUDA, and this one was not",
            path,
            cure="Install torch's CUDA wheel, or let `launch` call the kernels themselves.",
        )
    if not tool("nvcc").present or cpp_extension.CUDA_HOME is None:
        raise CannotJudgeError(
            "this file's host functions need nvcc to be compiled, and there is none",
            path,
            cure="Install the CUDA toolkit and set CUDA_HOME, or let `launch` call the kernels themselves.",
        )


def _arch_list(arch: str) -> str:
    """Torch's way to write an architecture: `9.0a` for `sm_90a`."""
    number = base_arch(arch).removeprefix("sm_")
    return f"{number[:-1]}.{number[-1]}{arch.removeprefix(base_arch(arch))}"


def _path() -> str:
    """The search path with the environment's own programs, such as ninja, which need not be activated."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _bindings(functions: Sequence[str]) -> str:
    lines = "".join(f'  m.def("{name.rpartition("::")[2]}", &{name});\n' for name in functions)
    return f"#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Hold a lock that the system takes back when its process dies, however that comes about."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
