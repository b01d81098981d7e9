"""Compile rewritten Triton kernels for sm_90, and run them in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernel_lsp.device.device import device_named
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel


def triton_kernel(text: str) -> tuple[SourceFile, Kernel]:
    """The only kernel of a Triton text."""
    file = SourceFile(Path("kernel.py"), text)
    (kernel,) = find_kernels(text, file.path)
    return file, kernel


def rewritten(rewrite, text: str, gpu: str = "H100") -> list[Candidate]:
    """All candidates for a Triton file on a GPU."""
    file, kernel = triton_kernel(text)
    return list(rewrite(file, None, kernel, device_named(gpu)))


def ptx(folder: Path, text: str, signature: dict[str, str], constants: dict[str, int]) -> str:
    """PTX of the last kernel of a text for sm_90."""
    path = folder / f"kernel_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, triton_kernel(text)[1].name)
    types = {name: signature.get(name, "constexpr") for name in function.arg_names}
    source = ASTSource(function, types, {(function.arg_names.index(n),): v for n, v in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def interpret(folder: Path, text: str, script: str) -> None:
    """Run `script`, which may `import kernel`, in Triton's interpreter on the CPU."""
    (folder / "kernel.py").write_text(text)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
