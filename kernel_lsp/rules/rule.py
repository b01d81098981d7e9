"""The record of a rule: name, severity and page of one kind of finding."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part


class Group(StrEnum):
    """Subject of a rule; the tens of its number."""

    COMPILE = "compiling"
    MEMORY = "memory and threads"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"
    REGRESSION = "regressions"
    HOUSEKEEPING = "housekeeping"
    ASYNCHRONOUS = "asynchronous copies"


class Needs(StrEnum):
    """The check that must have been done before the absence of a finding means anything.

    An ignore that silenced nothing is unused only if its rule was checked.
    """

    COMPILING = "compiling"
    RUNNING = "running"
    EMULATING = "emulating"
    BASELINE = "baseline"
    TIMING = "timing"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. Its id never changes its meaning and is never used again.

    Attributes:
        id: `KL012`; used in ignores, reports and links.
        name: a few words with hyphens, for people.
        group: its subject.
        severity: errors fail a check, warnings only with `--strict`.
        needs: the check that finds it.
        summary: one line: what is wrong.
        what: when it is reported, with its threshold, in Markdown.
        why: why it matters, in Markdown.
        before: code that violates it.
        after: the same code, corrected.
        fix: the usual fix, one or two sentences; also part of the finding.
        language: language of `before` and `after`.
        fixes: fixes for languages where they differ.
        silenceable: True if an ignore can silence it.
    """

    id: str
    name: str
    group: Group
    severity: Severity
    needs: Needs
    summary: str
    what: str
    why: str
    before: str
    after: str
    fix: str
    language: Language = Language.CUDA
    silenceable: bool = True
    fixes: Mapping[Language, str] = field(default_factory=dict[Language, str])

    def fix_in(self, language: Language) -> str:
        """Return the usual fix in a file of that language."""
        return self.fixes.get(language, self.fix)

    @property
    def page(self) -> str:
        """Return the whole page in Markdown."""
        language = source_part(self.language)
        fence = language.highlighted_as
        failing = "an error" if self.severity is Severity.ERROR else "a warning"
        silence = (
            f"`{language.comment} kernel-lsp: ignore[{self.id}] why it is meant`, on the line or the one before."
            if self.silenceable
            else "It cannot be silenced."
        )
        parts = (
            f"# {self.id} {self.name}",
            f"{self.summary} ({self.group}; {failing})",
            f"## What it reports\n\n{self.what}",
            f"## Why it matters\n\n{self.why}",
            f"## Example\n\n```{fence}\n{self.before}\n```\n\nBetter:\n\n```{fence}\n{self.after}\n```",
            f"## What usually fixes it\n\n{self.fix}"
            + "".join(f" In {source_part(other).title}: {fix}" for other, fix in self.fixes.items()),
            f"## To silence it\n\n{silence}",
        )
        return "\n\n".join(parts) + "\n"

    def at(
        self,
        path: str,
        line: int,
        message: str,
        *,
        column: int = 1,
        end: tuple[int, int] | None = None,
        severity: Severity | None = None,
    ) -> Diagnostic:
        """Return a finding of this rule at a place; `end` is line and column after its last character."""
        end_line, end_column = end or (line, column)
        return Diagnostic(path, line, column, end_line, end_column, severity or self.severity, message, self.id)
