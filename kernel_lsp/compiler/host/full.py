"""The full build of torch extensions: torch's own headers, nvcc and ninja. Worker processes only.

Slow (a minute is usual, for `torch/extension.h`), so a library is cached under the hash of all its inputs. It runs code
of the extension, because torch imports the library once it is built.
"""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.extension import ExtensionBuild, HostBuild
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.diagnostics import has_errors, parse_diagnostics
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.host.build import placed, quoted
from kernel_lsp.compiler.host.compiler import CODE_APART, host_compiler, standard_library
from kernel_lsp.compiler.host.request import ExtensionRequest, Unit
from kernel_lsp.compiler.host.torch_extension import cpp_extension
from kernel_lsp.compiler.toolchain.file_cache import cache_key
from kernel_lsp.compiler.toolchain.target import split_targets, target_of
from kernel_lsp.compiler.toolchain.tools import tool
from kernel_lsp.device.architectures import base_arch
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.source.candidate import SourceFile

_DEFAULTS = BuildOptions()
_INLINE_CPP = "#include <torch/extension.h>\n"
_INLINE_CUDA = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
_load = cpp_extension.load  # taken before any code of a candidate has run


def full_build(
    request: ExtensionRequest,
    arch: str,
    origin: SourceFile,
    folder: Path,
    options: BuildOptions = _DEFAULTS,
    reason: str = "",
) -> ExtensionBuild:
    """Build an extension as torch does.

    Args:
        request: what to build.
        arch: `sm_90` and the like.
        origin: the file whose text holds the sources, so that messages name its lines.
        folder: where libraries are kept.
        options: the user's own compiler options.
        reason: why the fast build was not possible, for the record.

    Raises:
        CannotJudgeError: it has CUDA code, and torch was built without CUDA or there is no nvcc.
    """
    if request.cuda:
        _require_compiler(origin.path, reason)
    headers = user_headers(
        SourceFile(origin.path, "\n".join(unit.text for unit in request.units)), options.include_dirs
    )
    given, targets = split_targets((*request.cuda_cflags, *options.flags))
    code = (unit.text for unit in (*request.cuda, *headers))
    target = target_of(arch, code, targets) if request.cuda else ""
    texts = _texts(request, origin)
    key = cache_key(
        [
            *texts,
            target,
            torch.__version__,
            tool("nvcc").version or "",
            *request.cflags,
            "cuda",
            *request.cuda_cflags,
            "link",
            *request.ldflags,
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
            record = HostBuild("full", reason, cached_host=True, cached_device=True, arch=target)
            build = Build(None, (), "extension", 0.0, cached=True, log=log)
            return ExtensionBuild(request.digest, request.name, record, build, extension=str(library))
        # Torch's own lock file has no owner: one left behind by a killed build would make every later build wait.
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        files: list[str] = []
        for number, (unit, text) in enumerate(zip(request.units, texts, strict=True)):
            file = directory / f"{name}_unit{number}.{'cu' if unit.cuda else 'cpp'}"
            file.write_text(text, encoding="utf-8")
            files.append(str(file))
        cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(name, None)  # without this a failed build is not tried again
        compiler = host_compiler()
        include = dict.fromkeys((*request.include_paths, str(origin.path.parent), *map(str, options.include_dirs)))
        try:
            with mock.patch.dict(os.environ, {"TORCH_CUDA_ARCH_LIST": _arch_list(target or arch), "PATH": _path()}):
                _load(
                    name,
                    files,
                    extra_cflags=list(request.cflags),
                    # No language standard of ours: torch knows which one its headers need. No targets either: torch
                    # would use them instead of this GPU's.
                    extra_cuda_cflags=["-lineinfo", *given],
                    extra_ldflags=[*request.ldflags, *(standard_library(compiler[0]) if compiler else ()), CODE_APART],
                    extra_include_paths=list(include),
                    build_directory=str(directory),
                    with_cuda=bool(request.cuda) or None,
                )
        except (RuntimeError, ImportError, OSError) as error:
            log, seconds = str(error), time.perf_counter() - start
            own = {str(header.path): (str(header.path), header.text) for header in headers}
            found = parse_diagnostics(log, str(origin.path), origin.text, headers=own)
            if not has_errors(found):
                first = next((line for line in log.splitlines() if line.strip()), type(error).__name__)
                found = (Diagnostic(str(origin.path), 1, 1, 1, 1, Severity.ERROR, first), *found)
            build = Build(None, found, "extension", seconds, log=log)
            return ExtensionBuild(request.digest, request.name, HostBuild("full", reason, seconds), build)
        words.write_text("", encoding="utf-8")
    seconds = time.perf_counter() - start
    build = Build(None, (), "extension", seconds)
    record = HostBuild("full", reason, seconds, arch=target)
    return ExtensionBuild(request.digest, request.name, record, build, extension=str(library))


def _texts(request: ExtensionRequest, origin: SourceFile) -> list[str]:
    """Return the units as torch writes them, with `#line` directives for the lines of the user's file."""
    texts: list[str] = []
    for unit in request.units:
        before = "" if unit.path else _INLINE_CUDA if unit.cuda else _INLINE_CPP
        line, text = placed(unit, origin)
        texts.append(f"{before}#line {line} {quoted(unit.path or str(origin.path))}\n{text}\n")
    if request.functions is not None:
        texts[0] += _bindings(request.units[0], request.functions)
    return texts


def _bindings(unit: Unit, functions: tuple[tuple[str, str], ...]) -> str:
    """Return the bindings as torch writes them for `load_inline`; in a CUDA file without what nvcc cannot compile."""
    lines = ""
    for name, doc in functions:
        code = f"&{name}" if unit.cuda else f"torch::wrap_pybind_function({name})"
        lines += f'  m.def("{name.rpartition("::")[2]}", {code}{f", {quoted(doc)}" if doc else ""});\n'
    include = _INLINE_CPP if unit.cuda else ""
    return f"{include}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"


def _require_compiler(path: Path, reason: str) -> None:
    because = f" ({reason})" if reason else ""
    if torch.version.cuda is None:
        raise CannotJudgeError(
            f"its host code needs a torch that was built with CUDA, and this one was not{because}",
            path,
            fix="Install torch's CUDA wheel, or keep host code to what the thin header offers.",
        )
    if not tool("nvcc").present or cpp_extension.CUDA_HOME is None:
        raise CannotJudgeError(
            f"its host code needs nvcc to be compiled, and there is none{because}",
            path,
            fix="Install the CUDA toolkit and set CUDA_HOME, or keep host code to what the thin header offers.",
        )


def _arch_list(arch: str) -> str:
    """Return an architecture as torch writes it: `9.0a` for `sm_90a`."""
    number = base_arch(arch).removeprefix("sm_")
    return f"{number[:-1]}.{number[-1]}{arch.removeprefix(base_arch(arch))}"


def _path() -> str:
    """Return PATH with the environment's own programs first, such as ninja; it need not be activated."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Hold an exclusive lock on `path`; the system releases it when the process dies in any way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
