"""A file that indents by tabs keeps doing so."""

from pathlib import Path

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.rewrites import applied
from kernel_lsp.refine.rewrites.reductions import parallel_rows
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language

TEXT = """
__global__ void norm(const float* a, float* b, float* s, int n, int c) {
\tint i = blockIdx.x * blockDim.x + threadIdx.x;
\tif (i < n) {
\t\tfloat sum = 0;
\t\tfor (int j = 0; j < c; j++) {
\t\t\tsum += a[i * c + j];
\t\t}
\t\tb[i] = sum;
\t\ts[i] = sqrtf(sum);
\t}
}
"""


def test_new_lines_are_indented_as_the_others() -> None:
    file = SourceFile(Path("norm.cu"), TEXT)
    (kernel,) = find_kernels(TEXT, file.path)
    launch = SourceFile(Path("w.py"), "def launch(module, a, b, s, n, c):\n    module.norm[n, 64](a, b, s, n, c)\n")
    base = Candidate(Language.CUDA, file, launch, "", "")
    warp, *_ = applied([parallel_rows.rewrite], base, kernel, device_named("H100"))
    assert "\t\tif (lane == 0) {\n\t\t\tb[i] = sum;\n\t\t\ts[i] = sqrtf(sum);\n\t\t}\n" in warp.kernel.text
    assert not any(line.startswith("  ") for line in warp.kernel.text.split("\n"))
