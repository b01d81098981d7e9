"""CuTe DSL compiles a function under `@cute.jit`, with the kernels it launches, when it is called."""

from kernel_lsp.compiler.language import CompilerPart


class _Cute:
    compiles_at_launch = True
    lays_out_threads = False
    compiles_alone = False
    includes_headers = False
    packages: tuple[str, ...] = ("nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-core")
    gpu_only = "the host code of CuTe DSL launches its kernels through the CUDA driver, and runs on a GPU only"

    def device_code(self, text: str) -> str:
        return ""


PART: CompilerPart = _Cute()
