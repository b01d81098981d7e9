"""Comments that silence rules: `// kernel-lsp: ignore[KL031] why it is meant`, in Python with `#`.

One covers its own line if code precedes it, else the next line of code, which for a kernel means all of its head;
`ignore-file[...]` covers the file. An id that silences nothing although its rule was checked is reported.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.rules.catalog import RULES, find_rule
from kernel_lsp.rules.housekeeping import UNKNOWN_IGNORE, UNUSED_IGNORE
from kernel_lsp.rules.rule import Needs
from kernel_lsp.source.comments import Comment
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Lines

_MARK = re.compile(r"(?://|#)\s*kernel-lsp:\s*(ignore(?:-file)?)\s*\[([^\]]*)\][ \t:-]*(.*)")
_ID = re.compile(r"[^\s,]+")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One id in one comment.

    Attributes:
        rule: the id as written.
        line: line of the comment, from 1.
        column: column of the id, in UTF-8 bytes from 1; `end_column` is exclusive.
        speaks_for: first and last line that it covers; None for the whole file.
        reason: text of the comment after the bracket.
    """

    rule: str
    line: int
    column: int
    end_column: int
    speaks_for: tuple[int, int] | None
    reason: str

    def silences(self, found: Diagnostic) -> bool:
        """Return True if it silences this finding, which is in the same file."""
        rule = RULES.get(self.rule)
        if rule is None or rule.id != found.code or not rule.silenceable:
            return False
        return self.speaks_for is None or self.speaks_for[0] <= found.line <= self.speaks_for[1]


@dataclass(frozen=True, slots=True)
class Silenced:
    """A silenced finding, and the reason in the comment."""

    finding: Diagnostic
    reason: str


def find_ignores(text: str, comments: Sequence[Comment], kernels: Sequence[Kernel] = ()) -> tuple[Ignore, ...]:
    """Return the ignores among the file's `comments`, in order; `kernels` locate comments above a kernel's head."""
    lines = Lines(text.encode())
    heads = {lines.position(k.span.start)[0]: lines.position(max(k.body.start - 1, k.span.start))[0] for k in kernels}
    passed_over = {comment.line for comment in comments if comment.alone} | _blank_lines(text)
    found: list[Ignore] = []
    for comment in comments:
        mark = _MARK.match(comment.text)
        if mark is None:
            continue
        speaks_for = None
        if mark[1] == "ignore":
            line = comment.line
            while comment.alone and line in passed_over:
                line += 1
            speaks_for = (line, max(heads.get(line, line), line))
        for name in _ID.finditer(mark[2]):
            start = comment.column + len(comment.text[: mark.start(2) + name.start()].encode())
            end = start + len(name[0].encode())
            found.append(Ignore(name[0], comment.line, start, end, speaks_for, mark[3].strip()))
    return tuple(found)


def silence(
    findings: Iterable[Diagnostic], ignores: Sequence[Ignore], path: str, done: Collection[Needs]
) -> tuple[list[Diagnostic], list[Silenced]]:
    """Return the remaining findings of one file, with those about its ignores, and the silenced findings.

    Args:
        findings: of the file at `path`.
        ignores: of the same file.
        path: path of the file in findings.
        done: the checks that were done: an ignore counts as unused only if its rule was checked.
    """
    kept: list[Diagnostic] = []
    silenced: list[Silenced] = []
    used: set[Ignore] = set()
    for found in findings:
        mine = [ignore for ignore in ignores if ignore.silences(found)]
        used.update(mine)
        if mine:
            silenced.append(Silenced(found, mine[0].reason))
        else:
            kept.append(found)
    for ignore in ignores:
        end = (ignore.line, ignore.end_column)
        rule = RULES.get(ignore.rule)
        if rule is None or not rule.silenceable:
            message = f"`{ignore.rule}` {'cannot be silenced' if rule else f'is not a rule{_instead(ignore.rule)}'}"
            kept.append(UNKNOWN_IGNORE.at(path, ignore.line, message, column=ignore.column, end=end))
        elif ignore not in used and rule.needs in done:
            message = f"{rule.id} ({rule.name}) has nothing to say here: remove it from this comment"
            kept.append(UNUSED_IGNORE.at(path, ignore.line, message, column=ignore.column, end=end))
    return kept, silenced


def _instead(name: str) -> str:
    """Return advice to write the id if a rule's name, or an id in small letters, is used; else nothing."""
    known = {rule.name for rule in RULES.values()} | {rule_id.lower() for rule_id in RULES}
    return f"; write {find_rule(name).id}" if name.lower() in known else ""


def _blank_lines(text: str) -> set[int]:
    lines = Lines(text.encode())
    starts = (*lines.starts, len(lines.data))
    return {
        number
        for number, (start, end) in enumerate(pairwise(starts), 1)
        if not lines.data[start:end].strip() and end > start
    }
