"""Triton compiles each kernel when it is launched, or on request, and caches the result by its source."""

from kernel_lsp.compiler.language import CompilerPart


class _Triton:
    compiles_at_launch = True
    lays_out_threads = True
    compiles_alone = False
    includes_headers = False
    packages: tuple[str, ...] = ()
    gpu_only = ""

    def device_code(self, text: str) -> str:
        return ""


PART: CompilerPart = _Triton()
