"""Rules about the comments that silence other rules."""

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.rules.rule import Group, Needs, Rule


def _rule(number: int, name: str, summary: str, *, what: str, why: str, before: str, after: str, fix: str) -> Rule:
    return Rule(
        id=f"KL{number:03}",
        name=name,
        group=Group.HOUSEKEEPING,
        severity=Severity.WARNING,
        needs=Needs.NOTHING,
        summary=summary,
        what=what,
        why=why,
        before=before,
        after=after,
        fix=fix,
        silenceable=False,
    )


UNUSED_IGNORE = _rule(
    50,
    "unused-ignore",
    "A comment silences a rule that has nothing to say there.",
    what="An id in `kernel-lsp: ignore[...]` whose rule was looked for and found nothing in its place.",
    why="It would hide the next true finding, and it tells readers of a problem that is gone.",
    before="y[i] = x[i];  // kernel-lsp: ignore[KL030] transposed on purpose",
    after="y[i] = x[i];",
    fix="Remove the id, or the whole comment.",
)

UNKNOWN_IGNORE = _rule(
    51,
    "unknown-ignore",
    "A comment names a rule that does not exist or cannot be silenced.",
    what="An id in `kernel-lsp: ignore[...]` that `kernel-lsp explain` does not list, or whose page says that it "
    "cannot be silenced.",
    why="It silences nothing, though it reads as if it did.",
    before="// kernel-lsp: ignore[KL999]",
    after="// kernel-lsp: ignore[KL031] two ways are cheaper than the padding",
    fix="Name a rule from `kernel-lsp explain`.",
)

RULES = (UNUSED_IGNORE, UNKNOWN_IGNORE)
