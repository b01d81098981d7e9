"""Compiles with nvcc: at least five times slower than NVRTC, but able to read any host header."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.cuda.diagnostics import NAMES_FILE, Locate, has_errors, parse_diagnostics
from kernel_lsp.compiler.cuda.facts import binary_from
from kernel_lsp.compiler.headers.user import UserHeader
from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.machine_code.symbols import kernel_name, same_name

_LIMITS = ("-include", "cfloat", "-include", "climits", "-include", "cmath", "-include", "cstdint")


def compile_nvcc(
    nvcc: Path,
    source: str,
    path: Path,
    arch: str,
    *,
    way: str,
    names: Sequence[str] = (),
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    headers: Sequence[UserHeader] = (),
    instead: Sequence[UserHeader] = (),
    locate: Locate | None = None,
    timeout: float = 600.0,
) -> Build:
    """Compile the device code of `source`, which need not be what `path` holds, to a cubin.

    Args:
        nvcc: the compiler.
        source: the text, sliced or whole.
        path: the user's file; messages and line information carry it, relative includes start from it.
        arch: `sm_90` and the like.
        way: `nvcc-slice` or `nvcc`, recorded in the build.
        names: kernels that launches ask for; of a template only these instances are compiled.
        options: further options of nvcc's.
        include_dirs: the user's include folders.
        headers: the user's headers, for columns in messages.
        instead: headers whose text is to be used instead of the file; those without a whole path are found by name.
        locate: see `parse_diagnostics`.
        timeout: seconds after which nvcc is killed and the build has failed.
    """
    start = time.perf_counter()
    instances = list(dict.fromkeys(name for name in names if "<" in name))
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-nvcc-") as scratch:
        cubin, ptx = (Path(scratch) / name for name in ("kernel.cubin", "kernel.ptx"))
        folder, folders = _lay_out(instead, (path.parent, *include_dirs), Path(scratch) / "files")
        file = folder / "kernel.cu"
        # nvcc emits a template instance only if host code takes its address.
        wanted = "".join(
            f"\n__attribute__((used)) static const void* const kernel_lsp_instance_{number} = (const void*)({name});"
            for number, name in enumerate(instances)
        )
        marker = f'\n#line 1 "{NAMES_FILE}"' if instances else ""
        file.write_text(f"{_named(path)}{source}{marker}{wanted}\n", encoding="utf-8")
        command = [
            str(nvcc),
            "-cubin",
            f"-arch={arch}",
            "-lineinfo",
            "--ptxas-options=-v",
            "--diag-suppress=177",
            "--expt-relaxed-constexpr",
            "--keep",
            f"--keep-dir={scratch}",
            *_LIMITS,
            *options,
            *(f"-I{folder}" for folder in folders),
            str(file),
            "-o",
            str(cubin),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=scratch, check=False
            )
            log, failed = done.stdout + done.stderr, done.returncode != 0
        except subprocess.TimeoutExpired:
            log, failed = f"nvcc error   : no result after {timeout:.0f} s", True
        own = {header.name: (str(header.path), header.text) for header in headers}
        own |= {str(header.path): (str(header.path), header.text) for header in headers}
        text = ptx.read_text(encoding="utf-8", errors="replace") if ptx.is_file() else None
        diagnostics = parse_diagnostics(log, str(path), source, headers=own, locate=locate, ptx=text)
        if failed or not cubin.is_file():
            if not has_errors(diagnostics):
                last = next((line for line in reversed(log.splitlines()) if line.strip()), "no message")
                words = f"nvcc failed: {last.strip()}"
                diagnostics = (Diagnostic(str(path), 1, 1, 1, 1, Severity.ERROR, words), *diagnostics)
            return Build(None, diagnostics, way, time.perf_counter() - start, log=log)
        image = cubin.read_bytes()
    symbols = [fact.entry for fact in read_cubin(image)]
    asked = {name: symbol for name in instances for symbol in symbols if same_name(name, kernel_name(symbol))}
    return Build(binary_from(arch, image, text, log, asked), diagnostics, way, time.perf_counter() - start, log=log)


def _named(path: Path) -> str:
    """Return a `#line` directive that makes the next line the first one of `path`."""
    quoted = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{quoted}"\n'


def _lay_out(headers: Sequence[UserHeader], folders: Sequence[Path], scratch: Path) -> tuple[Path, list[Path]]:
    """Write headers to where they lie relative to each other, but below `scratch`.

    Args:
        headers: what is written.
        folders: the include folders; the file that is compiled lies in the first.
        scratch: a folder that is not there yet.

    Returns:
        The folder for the file, and all include folders: what was written comes before what it stands for.
    """
    wholes = [header for header in headers if header.path.is_absolute()]
    root = Path(os.path.commonpath([folders[0].resolve(), *(header.path.parent for header in wholes)]))
    for header in headers:
        inside = header.path.relative_to(root) if header.path.is_absolute() else Path("named") / header.path
        place = scratch / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{_named(header.path)}{header.text}", encoding="utf-8")
    found: list[Path] = []
    for folder in folders:
        real = folder.resolve()
        found += [scratch / real.relative_to(root)] if real.is_relative_to(root) and wholes else []
        found.append(folder)
    own = scratch / folders[0].resolve().relative_to(root)
    own.mkdir(parents=True, exist_ok=True)
    return own, [*found, scratch / "named"]
