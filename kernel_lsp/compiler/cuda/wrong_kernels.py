"""Leaves kernels with errors out of a file, so that they do not cost its other kernels their facts."""

from dataclasses import replace

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.text import Lines


def without_wrong_kernels(source: SourceFile, build: Build) -> SourceFile | None:
    """Return the file with blanks for the kernels that a build's errors are in.

    None if there are errors elsewhere too, or no kernel would be left.
    """
    data = source.text.encode()
    lines, kernels = Lines(data), find_kernels(source.text, source.path)
    wrong: set[int] = set()
    for said in (one for one in build.diagnostics if one.severity is Severity.ERROR):
        around = [
            at
            for at, kernel in enumerate(kernels)
            if said.path == str(source.path)
            and lines.position(kernel.span.start)[0] <= said.line <= lines.position(kernel.span.end)[0]
        ]
        if not around:
            return None
        wrong |= {*around}
    if not wrong or len(wrong) == len(kernels):
        return None
    for span in (kernels[at].span for at in wrong):
        data = data[: span.start] + blanked(data[span.start : span.end]) + data[span.end :]
    return replace(source, text=data.decode())
