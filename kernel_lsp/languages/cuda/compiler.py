"""CUDA C++ is compiled by NVRTC, nvcc or g++ with nvcc before anything is run."""

from kernel_lsp.compiler.language import CompilerPart
from kernel_lsp.source.slicing import same_code, slice_device


class _Cuda:
    compiles_at_launch = False
    lays_out_threads = False
    compiles_alone = True
    includes_headers = True
    packages: tuple[str, ...] = ()
    gpu_only = ""

    def device_code(self, text: str) -> str:
        return same_code(slice_device(text))


PART: CompilerPart = _Cuda()
