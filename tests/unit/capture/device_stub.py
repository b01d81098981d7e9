"""Builds the stub of a GPU's driver and CUPTI, and a program for it, with the machine's own compiler."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernel_lsp.compiler.host.compiler import host_compiler

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "kernel_lsp" / "capture" / "native"
_CODE = """extern "C" void scale_view() {}
extern "C" void batched() {}
extern "C" void racy() {}
extern "C" { float c_bias[4] = {1, 2, 3, 4}; }
"""


def build(*arguments: str | Path) -> None:
    """Run the host compiler; skip the test where there is none."""
    found = host_compiler()
    if found is None:
        pytest.skip("there is no g++")
    command = [str(found[0]), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Stub:
    """A machine with the stub: its libraries, its program and the program's machine code."""

    folder: Path

    @property
    def program(self) -> list[str]:
        return [str(self.folder / "program"), str(self.folder / "code.o")]

    @property
    def cupti(self) -> Path:
        return self.folder / "libcupti.so.13"

    @property
    def library_path(self) -> str:
        return os.pathsep.join(filter(None, (str(self.folder), os.environ.get("LD_LIBRARY_PATH", ""))))


def build_stub(folder: Path) -> Stub:
    """Build all of it in a folder."""
    driver = folder / "libcuda.so.1"
    (folder / "code.cpp").write_text(_CODE)
    build("-c", "-ffunction-sections", folder / "code.cpp", "-o", folder / "code.o")
    build("-shared", "-fPIC", HERE / "stub_driver.cpp", "-Wl,-soname,libcuda.so.1", "-o", driver, "-ldl")
    build(HERE / "stub_program.cpp", "-o", folder / "program", driver, f"-Wl,-rpath,{folder}")
    (folder / "libcupti.so.13").symlink_to(driver)
    return Stub(folder)
