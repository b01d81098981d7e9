"""The build worker: traces and compiles candidates without a GPU. NVRTC stays loaded between CUDA candidates.

Planning runs the workload's Python, and building a Triton file runs that file too; hence a process of its own.
"""

from dataclasses import replace
from functools import lru_cache

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.host import compiler
from kernel_lsp.runner.language import runner_part
from kernel_lsp.runner.libraries import Before
from kernel_lsp.runner.messages.build import (
    BuildCandidate,
    BuildExtension,
    BuildExtensionFully,
    BuildRole,
    CandidateBuild,
    PrepareHeader,
)
from kernel_lsp.runner.workers.problems import extensions_left_out
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.workload import Workload

_PARTS = {language: runner_part(language) for language in Language}  # imported before workers are forked


def methods() -> BuildRole:
    """Return the object that answers this role's requests."""
    return _Builder()


class _Builder:
    """Answers build requests; compilers, and workloads already executed, are kept for later requests."""

    def build(self, request: BuildCandidate) -> CandidateBuild:
        """Build a candidate.

        Raises:
            WorkloadError: the workload does not work, or `launch` does not fit the file.
        """
        before = Before.now()
        built = _PARTS[request.language].build(request, lambda: _workload(request))
        return replace(built, libraries=before.imported_since())

    def build_extension(self, request: BuildExtension) -> ExtensionBuild | str:
        """Build an extension on the fast path; return a reason if that is impossible."""
        from kernel_lsp.runner.workers import inline

        cache = request.cache
        return inline.build_extension(
            request.extension, request.arch, request.origin, cache.path, cache.limit, request.options
        )

    def build_extension_fully(self, request: BuildExtensionFully) -> ExtensionBuild:
        """Build an extension with torch's own headers and nvcc."""
        from kernel_lsp.runner.workers import inline

        return inline.build_fully(
            request.extension, request.arch, request.origin, request.folder, request.reason, request.options
        )

    def prepare_header(self, request: PrepareHeader) -> None:
        """Precompile the header that every extension on the fast path includes."""
        compiler.prepare_header(request.folder)


def _workload(request: BuildCandidate) -> Workload | None:
    if request.workload is None:
        return None
    with fake_gpu(request.device):  # a workload may read the GPU's properties when it is imported
        return _loaded(request.workload)


@lru_cache(maxsize=8)
def _loaded(file: SourceFile) -> Workload:
    with extensions_left_out(file.text):
        return load_workload(file.text, file.path)
