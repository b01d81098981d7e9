"""The evidence of a verdict for editors, as a text and as a page. Call it in threads: it waits for the disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.wire import EvidencePage, KernelOpcodes, VerdictEvidence, extended
from kernel_lsp.report.evidence import evidence_markdown, evidence_title
from kernel_lsp.report.page import Editor, verdict_page
from kernel_lsp.report.page.parts import section_element
from kernel_lsp.report.steps import search_steps
from kernel_lsp.report.view.kernels import instructions_section
from kernel_lsp.report.view.verdict import Step
from kernel_lsp.store.store import Store


@dataclass(frozen=True, slots=True)
class Found:
    """A verdict, its short id, and the search that reached it."""

    verdict: Verdict
    name: str
    steps: tuple[Step, ...]


def find_evidence(store: Store, unsaved: Mapping[str, dict[str, Any]], name: str) -> Found:
    """Return the evidence of a verdict, by its id or a prefix of the id.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    if name in unsaved:
        return Found(Verdict.model_validate(unsaved[name]), name, ())
    found = store.resolve(name)
    document = store.find_verdict(found)
    if document is None:
        raise ConfigurationError("The verdict is not in the store any more.")
    return Found(Verdict.model_validate(document), store.short_id(found), search_steps(store, found))


def as_text(found: Found) -> VerdictEvidence:
    """Return the evidence as Markdown, for every editor."""
    verdict = found.verdict
    label = verdict.evidence.candidate_label
    return VerdictEvidence(
        verdict.id, found.name, label, evidence_title(verdict), evidence_markdown(verdict, found.name)
    )


def as_page(found: Found, *, applies: bool) -> EvidencePage:
    """Return the evidence as a page; `applies` is True if the variant is for the text as it is."""
    page = verdict_page(found.verdict, found.name, found.steps, Editor(applies))
    return extended(EvidencePage, as_text(found), page=page)


def instructions_html(kernels: Sequence[KernelOpcodes], arch: str | None) -> str:
    """Return the instructions of both sides of each kernel as a section of the page."""
    section = instructions_section({one.name: (one.baseline, one.candidate) for one in kernels}, arch)
    return str(section_element(section))
