"""A KernelBench answer without kernels of its own, or a problem's `Model`: all that can be built of it is the model.

Worker processes only: it runs the user's code.
"""

import time

from kernel_lsp.build.binary import Build, Diagnostic, Severity
from kernel_lsp.build.pretend import pretend_gpu
from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.answer import Answer
from kernel_lsp.workload.load import Workload, load_module


def build_answer(source: SourceFile, workload: Workload, arch: str) -> Build:
    """Execute the file and construct its model for the case as written, where there is no GPU.

    Args:
        source: the file with `ModelNew`, or with `Model` alone.
        workload: the problem.
        arch: the GPU that the code is told to run on.

    Raises:
        WorkloadError: the problem's own code raises.
    """
    start = time.perf_counter()
    try:
        with pretend_gpu(arch):
            load_answer(source, workload).build(0)
    except WorkloadError as error:
        if error.path != source.path:
            raise
        line = error.line or 1
        said = Diagnostic(str(source.path), line, 1, line, 1, Severity.ERROR, error.message)
        return Build(None, (said,), "torch", time.perf_counter() - start)
    return Build(None, (), "torch", time.perf_counter() - start)


def load_answer(source: SourceFile, workload: Workload) -> Answer:
    """The model class of an answer, which is executed for it; raises as `Answer` and `load_module`."""
    return Answer(load_module(source.text, source.path), source.path, workload.calls, "cpu")
