"""Pages for a browser and for editors: nothing is loaded from elsewhere, and no script is needed to read them.

Plots are drawn by Observable Plot, which lies beside this file (`extension/scripts/plot.mjs` makes it); tables say the
same in words. Only what carries the page's nonce may run or style, and every text is escaped: a candidate may say what
it likes.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic_core import to_json

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.page.elements import Markup, joined, tag
from kernel_lsp.report.page.parts import head_element, plots_of, section_element
from kernel_lsp.report.view.kernels import INSTRUCTIONS
from kernel_lsp.report.view.parts import ReportSection, View
from kernel_lsp.report.view.verdict import Step, verdict_view

_HERE = Path(__file__).parent
_LIBRARY = "plot.min.js"
_SCRIPT = "page.js"


@dataclass(frozen=True, slots=True)
class Editor:
    """An editor that shows the page; `applies` is True if the variant is for the text as it is there."""

    applies: bool

    @property
    def buttons(self) -> tuple[tuple[str, str], ...]:
        """Return the requests that a reader can make of the editor: title and name of each."""
        offered = (("Show Diff", "diff"), ("Apply", "apply")) if self.applies else ()
        return (*offered, ("Open as Text", "text"))


def verdict_page(verdict: Verdict, name: str, steps: Sequence[Step] = (), editor: Editor | None = None) -> str:
    """A verdict with all that it rests on.

    Args:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
        steps: of the search that made the candidate, in order.
        editor: that shows the page; None where a browser does.
    """
    title = f"{verdict.verdict} {verdict.evidence.candidate_label} · {verdict.evidence.kernel_path}"
    view = verdict_view(verdict, name, steps)
    return page(title, _with_instructions(view) if editor else view, editor)


def page(title: str, view: View, editor: Editor | None = None) -> str:
    """Return a whole page; `title` is shown by the browser."""
    nonce = secrets.token_urlsafe(16)
    policy = f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Markup(f'<style nonce="{nonce}">{_file("page.css")}</style>'),
    )
    plots = plots_of(view)
    # `</script>` would end the element, whatever it stands in; JSON may write any character by its number.
    data = to_json(plots).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    scripts = [Markup(f'<script type="application/json" id="plots">{data}</script>')]
    scripts += [
        Markup(f'<script nonce="{nonce}">{_file(file)}</script>')
        for file in ((_LIBRARY, _SCRIPT) if plots else (_SCRIPT,))
    ]
    shown = head_element(view.head, editor.buttons if editor else ())
    sections = [section_element(section, for_editor=editor is not None) for section in view.sections]
    body = tag("body", tag("main", shown, *sections), *scripts)
    return f'<!doctype html>\n<html lang="en">{joined(head, body)}</html>\n'


def _with_instructions(view: View) -> View:
    """Return the view with a section of instructions, which the editor fills when both versions are compiled."""
    if any(section.name == INSTRUCTIONS for section in view.sections):
        return view
    before, after = view.sections[:-2], view.sections[-2:]  # how it was reached, and how to repeat it
    return replace(view, sections=(*before, ReportSection(INSTRUCTIONS, "Instructions", ()), *after))


@cache
def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
