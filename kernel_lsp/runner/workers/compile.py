"""The compile worker: compiles CUDA files that no workload launches, and runs none of the user's code.

It needs NVRTC alone, so that the first facts of a session do not wait for torch to be imported.
"""

from collections.abc import Sequence

from kernel_lsp.compiler.binary import Build
from kernel_lsp.compiler.cuda import build_cuda, build_included
from kernel_lsp.compiler.cuda_assumed import build_unlaunched
from kernel_lsp.runner.messages.build import CandidateBuild, CompileAlone, CompileRole


def methods() -> CompileRole:
    """Return the object that answers this role's requests."""
    return _Compiler()


class _Compiler:
    """Answers compile requests; NVRTC stays loaded between them."""

    def compile_alone(self, request: CompileAlone) -> CandidateBuild:
        """Compile all kernels of a file, as it stands or, if it is a header, as one of its includers has it."""
        source, arch, options = request.kernel, request.arch, request.options

        def compile_names(names: Sequence[str]) -> Build:
            return build_cuda(source, arch, names, options, request.cache.opened(), spare_headers=True)

        made, plan, assumed = build_unlaunched(source, compile_names, request.including)
        if made.binary is None and (before := request.before) is not None:

            def compile_included(names: Sequence[str]) -> Build:
                return build_included(source, before, arch, names, options)

            made, plan, assumed = build_unlaunched(source, compile_included, request.including)
        return CandidateBuild(made, (plan,), assumed=assumed)
