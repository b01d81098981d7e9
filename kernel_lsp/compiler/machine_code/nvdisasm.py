"""Runs nvdisasm: first the one of the toolkit that made the cubin, else any other that can read it."""

import hashlib
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from kernel_lsp.compiler.machine_code.cubin import REGISTERS, info_attributes
from kernel_lsp.compiler.machine_code.elf import read_sections
from kernel_lsp.compiler.toolchain.file_cache import FileCache, cache_key
from kernel_lsp.compiler.toolchain.toolkit import find_tools
from kernel_lsp.errors import CannotJudgeError

_TIMEOUT = 60.0  # seconds
_ABI, _FLAGS = 8, 48  # offsets in the header of an ELF image
_MOST_REGISTERS = 254  # nvdisasm's limit when it counts live registers


def listing(cubin: bytes, cache: FileCache | None = None, *, by_triton: bool = False) -> str:
    """Return the machine code of `cubin` as text, with the number of live registers beside each instruction.

    Takes some 0.25 s, or a millisecond if it is cached.

    Args:
        cubin: an ELF image.
        cache: where listings are looked up and kept.
        by_triton: whether Triton's own toolkit made it, so that its own nvdisasm is asked first.

    Raises:
        CannotJudgeError: there is no nvdisasm that can read it.
        struct.error, IndexError, ValueError: not a whole ELF image.
    """
    digest = hashlib.sha256(cubin).digest()
    said = "none was found"
    for tool in sorted(find_tools("nvdisasm"), key=lambda tool: ("triton" in tool.parts) != by_triton):
        stamp = tool.stat()
        key = cache_key(("sass", str(tool), str(stamp.st_size), str(stamp.st_mtime_ns), digest))
        if cache is not None and (kept := cache.read(key)) is not None:
            return zlib.decompress(kept).decode()
        for image in _images(cubin):
            printed, said = _run(tool, image)
            if printed:
                if cache is not None:
                    cache.write(key, zlib.compress(printed.encode(), 1))
                return printed
    raise CannotJudgeError(
        f"the machine code cannot be shown: nvdisasm: {said}",
        fix="Install it with: pip install nvidia-cuda-nvdisasm.",
    )


def _run(tool: Path, image: bytes) -> tuple[str, str]:
    """Return the listing, empty on failure, and the last line of the error output."""
    with tempfile.TemporaryDirectory(prefix="kernel-lsp-sass-") as scratch:
        file = Path(scratch) / "kernel.cubin"
        file.write_bytes(image)
        command = [str(tool), "-c", "-lrm", "count", str(file)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)
    said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
    return ("" if done.returncode else done.stdout), said[-1]


def _images(cubin: bytes) -> Iterator[bytes]:
    """Yield the image in forms in which nvdisasm may count its registers; the instructions are the same in all.

    - nvdisasm of CUDA 13 analyses images of ABI 8 alone. Triton's wheel has it beside ptxas of CUDA 12.8, which writes
      ABI 7 for architectures before sm_100: such an image gets a header of ABI 8.
    - nvdisasm refuses a kernel of 255 registers: 254 are declared.
    """
    image = bytearray(cubin)
    for section in read_sections(image):
        if section.name == ".nv.info":
            for attribute, value in info_attributes(section.data):
                if attribute == REGISTERS and struct.unpack_from("<I", value, 4)[0] > _MOST_REGISTERS:
                    struct.pack_into("<I", value, 4, _MOST_REGISTERS)
    if image[_ABI] == 7:
        newer = bytearray(image)
        newer[_ABI - 1 : _ABI + 1] = b"\x41\x08"
        struct.pack_into("<I", newer, _FLAGS, 0x09000004 | newer[_FLAGS] << 8)
        yield bytes(newer)
    yield bytes(image)
