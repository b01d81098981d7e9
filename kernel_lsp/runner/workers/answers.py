"""Execute a KernelBench answer, or a problem's `Model`, without a GPU, to learn which extensions it asks for.

Worker processes only: it runs the user's code.
"""

import contextlib
import time
from dataclasses import dataclass

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.fakes.gpu import ShapesOnly, fake_gpu
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.device.device import Device
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers.inline import recording
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.answer import Answer
from kernel_lsp.workload.workload import Workload, make_inputs


@dataclass(frozen=True, slots=True)
class ExecutedAnswer:
    """The result of executing an answer: its errors as a build, and the extensions that it asks for."""

    build: Build
    requests: tuple[ExtensionRequest, ...] = ()


def execute_answer(source: SourceFile, workload: Workload, device: Device) -> ExecutedAnswer:
    """Execute the file and construct its model for the case as written.

    If that asks for no extension though the text names `load_inline`, the model is called too, up to the first function
    of an extension that is not built yet.

    Args:
        source: the file with `ModelNew`, or with `Model` alone.
        workload: the problem.
        device: the GPU that the code is told to run on.

    Raises:
        WorkloadError: the problem's own code raises.
    """
    start = time.perf_counter()
    shapes = ShapesOnly()
    with recording() as requests:
        try:
            with fake_gpu(device), shapes:
                answer = load_answer(source, workload)
                answer.build(0)
                if not requests and "load_inline" in source.text:
                    _call(answer, workload)
        except WorkloadError as error:
            if error.path != source.path:
                raise
            line = error.line or 1
            said = Diagnostic(str(source.path), line, 1, line, 1, Severity.ERROR, error.message)
            return ExecutedAnswer(Build(None, (said,), "torch", time.perf_counter() - start))
    return ExecutedAnswer(Build(None, (), "torch", time.perf_counter() - start), tuple(requests))


def load_answer(source: SourceFile, workload: Workload) -> Answer:
    """Return the model of an answer for a machine without a GPU."""
    return Answer(source.text, source.path, workload.calls, "cpu")


def _call(answer: Answer, workload: Workload) -> None:
    with contextlib.suppress(Exception):  # without its extensions it may raise anything
        answer.launch(0)(*make_inputs(workload, workload.cases[0]))
