"""Kernels in a Python file's CUDA text are called as CUDA's are."""

from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.language import WorkloadPart, workload_part

PART: WorkloadPart = workload_part(Language.CUDA)
