"""Assembles PTX with ptxas, any that can."""

import re
import subprocess
import tempfile
from pathlib import Path

from kernel_lsp.compiler.toolchain.toolkit import find_tools
from kernel_lsp.errors import CannotJudgeError

_SECONDS = 60.0
_VERSION = re.compile(r"^\.version\s+[\d.]+", re.MULTILINE)
_OLDER = re.compile(r"Unsupported \.version [\d.]+; current version is '([\d.]+)'")


def assemble(ptx: str, arch: str) -> bytes:
    """Return the cubin of a PTX module.

    NVRTC may be newer than ptxas, which then refuses the module for its version alone: it is told an older one, and
    refuses only what it does not know.

    Raises:
        CannotJudgeError: there is no ptxas, or none takes it.
    """
    said = "none was found"
    for tool in find_tools("ptxas"):
        made, said = _run(tool, ptx, arch)
        if made is None and (older := _OLDER.search(said)):
            made, said = _run(tool, _VERSION.sub(f".version {older[1]}", ptx, count=1), arch)
        if made is not None:
            return made
    last = next((line for line in said.splitlines() if line.strip()), "")
    raise CannotJudgeError(f"the machine code cannot be made: ptxas: {last}", fix="Install a newer CUDA toolkit.")


def _run(tool: Path, ptx: str, arch: str) -> tuple[bytes | None, str]:
    """Return the cubin, None on failure, and what ptxas has said."""
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-ptxas-") as scratch:
        file, cubin = Path(scratch) / "kernel.ptx", Path(scratch) / "kernel.cubin"
        file.write_text(ptx, encoding="utf-8")
        command = [str(tool), "-lineinfo", f"-arch={arch}", str(file), "-o", str(cubin)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        return (cubin.read_bytes() if done.returncode == 0 and cubin.is_file() else None), done.stderr
