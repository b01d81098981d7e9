"""Compiles the CUDA text of a Python file as CUDA; the Python around it is imported."""

from kernel_lsp.compiler.language import CompilerPart


class _Torch:
    compiles_at_launch = False
    lays_out_threads = False
    compiles_alone = False
    includes_headers = True
    packages: tuple[str, ...] = ()
    gpu_only = ""

    def device_code(self, text: str) -> str:
        return ""


PART: CompilerPart = _Torch()
