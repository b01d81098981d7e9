"""The static checker for a candidate's host code: reports code that a kernel does not need and that could cheat.

Host code of a candidate runs in the process that times it. A kernel needs little of Python and C++ there: it makes
tensors, computes sizes and launches. Code that would replace functions of others, or open files, processes and memory,
is a violation (`Violation`); code that is merely unusual is a `Note`; neither is reported if the user's own text does
the same. A determined author can hide code from it, so the judge's verdicts do not rest on it.
"""

from collections.abc import Sequence
from functools import lru_cache

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import inline_sources, is_problem
from kernel_lsp.source.python import is_python
from kernel_lsp.source.static_check.findings import Finding, HostCode, Note, Violation
from kernel_lsp.source.static_check.host import cpp_findings
from kernel_lsp.source.static_check.python import python_findings
from kernel_lsp.source.static_check.shared import SharedNames, shared_names

__all__ = ["HostCode", "Note", "Violation", "check_cpp", "check_python"]


def check_python(candidate: Candidate, baseline: Candidate, workload: SourceFile) -> HostCode:
    """Return what a candidate's Python host code does, in order, without what baseline or workload do.

    Host code is a candidate's Python kernel file, with the C++ that it passes to `load_inline`, and its launch. An
    answer to a KernelBench problem may build extensions. Text that does not parse has no violations: executing it
    reports the error.
    """
    builds = is_problem(workload.text)
    own = [file for file in (baseline.kernel, baseline.launch, workload) if file is not None]
    own = [file for file in own if is_python(file.path)]
    bare = not source_part(candidate.language).python
    usual = {found.what for file in own for found in _of_file(file.text, builds=builds, beside_device_code=bare)}
    files = [candidate.kernel] if not bare else []
    files += [candidate.launch] if candidate.launch is not None else []
    return HostCode.of(
        one
        for file in files
        for one in _of_file(
            file.text, builds=builds, beside_device_code=bare, shared=shared_names(file, baseline, workload)
        )
        if one.what not in usual
    )


def check_cpp(candidate: Sequence[str], baseline: SourceFile) -> HostCode:
    """Return what the C++ host code of torch extensions does, text by text, without what the baseline does."""
    usual = {found.what for found in cpp_findings(baseline.text)}
    return HostCode.of(found for text in candidate for found in cpp_findings(text) if found.what not in usual)


@lru_cache(maxsize=32)  # the same baseline and workload are checked beside every candidate
def _of_file(
    text: str, *, builds: bool, beside_device_code: bool, shared: SharedNames = frozenset()
) -> tuple[Finding, ...]:
    data = text.encode(errors="replace")
    found = list(python_findings(text, builds=builds, beside_device_code=beside_device_code, shared=shared))
    for source in inline_sources(text):
        above = data.count(b"\n", 0, source.span.start)
        found += [type(one)(above + one.line, one.what) for one in cpp_findings(source.text)]
    return tuple(sorted(found, key=lambda one: one.line))
