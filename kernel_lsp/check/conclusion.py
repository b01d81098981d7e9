"""Turns the result of examining a file into its report: adds regressions, sets silenced findings aside."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_lsp.check.baseline import FileRecord, regressions
from kernel_lsp.check.dependencies import Dependencies
from kernel_lsp.check.record import Examination, FileReport, placed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.rules.ignores import Silenced, find_ignores, silence
from kernel_lsp.rules.rule import Needs
from kernel_lsp.source.comments import cuda_comments, python_comments
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.language import source_part
from kernel_lsp.source.python import is_python

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def conclude(
    report: FileReport,
    depends: Dependencies,
    examined: Examination,
    record: FileRecord | None,
    device: str | None,
    ignored: Collection[str],
) -> FileReport:
    """Return the report, completed.

    Args:
        report: with the fields that need no examination.
        depends: the texts that were examined.
        examined: its result, with paths relative to the file's folder.
        record: the file's part of the baseline, if it has one.
        device: the model of the GPU that times were taken on.
        ignored: ids of rules that the settings silence.
    """
    source, folder = depends.source, depends.source.path.parent
    kernels = find_kernels(source.text, source.path)
    found = [placed(finding, folder) for finding in examined.findings]
    done = set(examined.done)
    if record is not None and Needs.COMPILING in done:
        done.add(Needs.BASELINE)
        if device in record.times and examined.times is not None:
            done.add(Needs.TIMING)
        found += regressions(source, kernels, examined.resources, record, examined.times, device)
    own = str(source.path)
    kept, by_comment = silence(
        [finding for finding in found if finding.path == own],
        find_ignores(source.text, source_part(report.language).line_comments(source.text), kernels),
        own,
        done,
    )
    elsewhere, by_header = _in_other_files([finding for finding in found if finding.path != own], report, depends)
    left = sorted(kept + elsewhere, key=_place)
    off = [Silenced(finding, "by the settings") for finding in left if finding.code in ignored]
    return replace(
        report,
        diagnostics=(*report.diagnostics, *(finding for finding in left if finding.code not in ignored)),
        silenced=(*by_comment, *by_header, *off),
        checks=examined.checks,
        resources=examined.resources,
        assumed=examined.assumed,
        times=examined.times,
    )


def _in_other_files(
    found: Sequence[Diagnostic], report: FileReport, depends: Dependencies
) -> tuple[list[Diagnostic], list[Silenced]]:
    """Return findings in headers and imported modules, split into reported and silenced ones.

    An ignore comment there that silences nothing may be meant for another kernel, so it is not reported.
    """
    texts = {file.path.resolve(): file.text for file in depends.others}
    kept: list[Diagnostic] = []
    silenced: list[Silenced] = []
    for finding in found:
        text = texts.get(Path(finding.path).resolve(), "")
        comments = python_comments(text) if is_python(Path(finding.path)) else cuda_comments(text)
        ignores = [ignore for ignore in find_ignores(text, comments) if ignore.silences(finding)]
        if ignores:
            silenced.append(Silenced(finding, ignores[0].reason))
        else:
            kept.append(finding)
    return kept, silenced


def _place(finding: Diagnostic) -> tuple[int, str, int, int, str]:
    return _ORDER.index(finding.severity), finding.path, finding.line, finding.column, finding.code or ""
