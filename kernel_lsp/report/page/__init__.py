"""Pages for a browser: nothing is loaded from elsewhere, and no script is needed to read them.

Plots are drawn by Observable Plot on d3, which lie beside this file; tables say the same in words. A page allows
scripts by their hashes only, and every text in it is escaped: a candidate may say what it likes.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.page.elements import Markup, joined, tag
from kernel_lsp.report.page.sections import Step, sections

__all__ = ["Step", "page", "verdict_page"]

_HERE = Path(__file__).parent
_LIBRARIES = ("d3.min.js", "plot.min.js")


def verdict_page(verdict: Verdict, name: str, steps: Sequence[Step] = ()) -> str:
    """A verdict with all that it rests on.

    Args:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
        steps: of the search that made the candidate, in order.
    """
    title = f"{verdict.verdict} {verdict.evidence.candidate_label} · {verdict.evidence.kernel_path}"
    return page(title, sections(verdict, name, steps), "verdict", verdict.model_dump_json(), "page.js")


def page(title: str, parts: Iterable[Markup], name: str, carried: str, script: str) -> str:
    """A whole page.

    Args:
        title: shown by the browser.
        parts: what is to be read, in order.
        name: of the element in which the page carries data for its script.
        carried: those data, as JSON.
        script: the file beside this one that draws the plots.
    """
    # `</script>` would end the element, whatever it stands in; JSON may write any character by its number.
    data = carried.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    files = (*_LIBRARIES, script)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {' '.join(map(_allowed, files))}"
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Markup(f"<style>{_file('page.css')}</style>"),
    )
    data_element = Markup(f'<script type="application/json" id="{name}">{data}</script>')
    scripts = [Markup(f"<script>{_file(file)}</script>") for file in files]
    body = tag("body", tag("main", *parts), data_element, *scripts)
    return f'<!doctype html>\n<html lang="en">{joined(head, body)}</html>\n'


@cache
def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _allowed(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(_file(name).encode()).digest()).decode()}'"
