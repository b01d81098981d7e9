"""The input of every format: the reports of a check, and the names of their files in the repository."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from kernel_lsp.check import FileReport
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.source.text import Lines


@dataclass(frozen=True)
class CheckResults:
    """The outcome of one check.

    Attributes:
        reports: in the order to be shown.
        texts: the texts that were checked, by path as findings give it.
        root: folder that paths are told relative to, as code hosts want it: the repository's.
        strict: whether warnings fail the check.
    """

    reports: Sequence[FileReport]
    texts: Mapping[str, str]
    root: Path
    strict: bool = False

    @property
    def passed(self) -> bool:
        """Return True if the check does not fail."""
        return all(report.passes(strict=self.strict) for report in self.reports)

    def findings(self) -> Iterator[Diagnostic]:
        """All findings that are not silenced, errors of all files first; a header's once."""
        found = [d for report in self.reports for d in report.diagnostics if d.severity is not Severity.NOTE]
        for severity in (Severity.ERROR, Severity.WARNING):
            yield from dict.fromkeys(one for one in found if one.severity is severity)

    def name(self, path: Path | str) -> str:
        """A file's path from the root, with `/`; the whole path where it lies elsewhere."""
        absolute = Path(path).resolve()
        root = self.root.resolve()
        return (absolute.relative_to(root) if absolute.is_relative_to(root) else absolute).as_posix()

    def line(self, path: str, line: int) -> bytes:
        """One line of a file, without its end; empty where there is none."""
        text = self._lines.get(path)
        if text is None:
            text = self._lines[path] = Lines(self._content(path))
        if not 1 <= line <= len(text.starts):
            return b""
        return text.data[text.offset(line) : text.offset(line, 1 << 30)]

    def characters(self, path: str, line: int, column: int) -> int:
        """The column, counted in characters, of one counted in UTF-8 bytes."""
        return len(self.line(path, line)[: column - 1].decode(errors="replace")) + 1

    def fingerprints(self, findings: Sequence[Diagnostic]) -> list[str]:
        """Names that stay when lines above come and go: of rule, file, the line's text and which one of such it is."""
        seen: Counter[str] = Counter()
        names: list[str] = []
        for found in findings:
            text = self.line(found.path, found.line).strip().decode(errors="replace")
            key = f"{found.code}\0{self.name(found.path)}\0{text}"
            names.append(hashlib.sha256(f"{key}\0{seen[key]}".encode()).hexdigest()[:32])
            seen[key] += 1
        return names

    @cached_property
    def _lines(self) -> dict[str, Lines]:
        return {}

    def _content(self, path: str) -> bytes:
        if path in self.texts:
            return self.texts[path].encode()
        try:
            return Path(path).read_bytes()
        except OSError:
            return b""


class ReportFormat(Protocol):
    """A way to write results for other programs."""

    def __call__(self, results: CheckResults) -> str:
        """The whole text, with the end of its last line."""
        ...
