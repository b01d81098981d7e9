"""What the store says of a text, and what applies to it. For threads: it waits for the disk.

What only some sessions ask for is imported then: with prompts and an HTTP client it is 13 MiB.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import find_device
from kernel_lsp.errors import ConfigurationError, KernelLspError, SourceError, WorkloadError
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.documents import Document
from kernel_lsp.refine.lowering import LANGUAGES
from kernel_lsp.refine.offers import Known, Offer, find_offers
from kernel_lsp.report.units import percent_text, time_text
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import read_source
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.store.store import Store, VerdictRow
from kernel_lsp.workload.spec import WorkloadFile, find_workload

_LOOKED_AT = 50  # verdicts on a file, newest first


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one text.

    Attributes:
        workload: its workload, if it has one that can be used.
        problem: why it has none that can be used; None also where there is simply none.
        offers: variants found faster that are for this text as it is, best first.
        older: variants that were found faster than another version of it, best first.
        last: the latest verdict on a version of it.
        measured: how long this very text takes, as it was last timed; None where it was not.
        measured_by: id of the verdict that says so.
        untimed: whether the settings allow a search where there is no GPU.
        saved: whether the file has this text.
        voiceless: of a plain module, why no model can be asked for a kernel, by its language where that is so.
    """

    workload: WorkloadFile | None = None
    problem: str | None = None
    offers: tuple[Offer, ...] = ()
    older: tuple[Offer, ...] = ()
    last: VerdictRow | None = None
    measured: str | None = None
    measured_by: str | None = None
    untimed: bool = False
    saved: bool = False
    voiceless: Mapping[str, str] = field(default_factory=dict[str, str])

    def offer(self, verdict: str) -> Offer | None:
        """The variant, older ones included, that a verdict found faster."""
        return next((one for one in (*self.offers, *self.older) if one.verdict.id == verdict), None)

    def offers_for(self, kernel: str | None) -> list[Offer]:
        """Those that change a kernel."""
        return [o for o in self.offers if kernel is None or any(k.name == kernel for k in o.kernels)]


def look(
    store: Store,
    known: Known,
    unsaved: list[dict[str, Any]],
    document: Document,
    texts: dict[Path, str],
    settings: Settings,
) -> Standing:
    """What is known of a text.

    Args:
        store: where verdicts lie.
        known: offers read before.
        unsaved: verdicts that could not be stored.
        document: the text.
        texts: the open texts by path.
        settings: in force at the text, which say where workloads and problems lie.
    """
    return replace(_known(store, known, unsaved, document, texts, settings), saved=_is_saved(document))


def _is_saved(document: Document) -> bool:
    try:
        return document.on_disk and read_source(document.path).text == document.text
    except SourceError:
        return False


def _known(
    store: Store,
    known: Known,
    unsaved: list[dict[str, Any]],
    document: Document,
    texts: dict[Path, str],
    settings: Settings,
) -> Standing:
    language = document.language
    if language is None:
        return Standing()
    verdicts = [v for v in map(Verdict.model_validate, unsaved) if v.evidence.kernel_path == str(document.path)]
    last = _row(verdicts[-1]) if verdicts else next(iter(store.list_verdicts(str(document.path), limit=1)), None)
    try:
        workload = find_workload(
            document.source, texts=texts, problems=settings.kernelbench.root, folders=settings.workloads
        )
    except WorkloadError as error:
        return Standing(problem=str(error), last=last)
    if workload is None:
        return Standing(last=last)
    baseline = Target(language, document.source, document.kernels, None, workload).baseline
    found = find_offers(store, baseline, known, verdicts)
    fitting = tuple(offer for offer in found if offer.may_fit(document.text))
    older = tuple(o for o in found if o not in fitting and not o.is_applied(document.text))
    measured, measured_by = _measured(store, baseline)
    return Standing(workload, None, fitting, older, last, measured, measured_by)


def _row(verdict: Verdict) -> VerdictRow:
    """A verdict that is in no store, as the store would list it."""
    evidence = verdict.evidence
    return VerdictRow(
        id=verdict.id,
        created=0.0,
        verdict=verdict.verdict,
        stage=verdict.stage,
        speedup=verdict.speedup,
        kernel=evidence.kernel_path,
        baseline=evidence.baseline_digest,
        candidate=evidence.candidate_digest,
        label=evidence.candidate_label,
        device=evidence.device.name if evidence.device else None,
    )


def _measured(store: Store, text: Candidate) -> tuple[str | None, str | None]:
    """The longest case of the last verdict that timed a text, be it as baseline or as candidate."""
    for row in store.find_verdicts(str(text.kernel.path), text.digest, limit=_LOOKED_AT):
        is_baseline = row.baseline == text.digest
        if row.speedup is None or not (is_baseline or row.candidate == text.digest):
            continue
        document = store.find_verdict(row.id)
        cases = Verdict.model_validate(document).cases if document is not None else ()
        if not cases:
            continue
        longest = max(cases, key=lambda case: case.baseline_us)
        time = longest.baseline_us if is_baseline else longest.candidate_us
        share = longest.baseline_roofline_share if is_baseline else longest.roofline_share
        of_roofline = f", {percent_text(share)} of roofline" if share is not None else ""
        return f"{time_text(time)}{of_roofline} ({longest.case})", row.id
    return None, None


def find_voiceless(document: Document, settings: Settings) -> dict[str, str]:
    """Why no model can be asked to write a kernel for a module, by the kernel's language where that is so."""
    from kernel_lsp.refine.run import require_way

    found: dict[str, str] = {}
    for language in LANGUAGES:
        refine = settings.refine.model_copy(update={"write": language})
        try:
            require_way(document.source, settings.model_copy(update={"refine": refine}))
        except KernelLspError as error:
            found[language] = error.message
    return found


def find_cures(document: Document, kernel: Kernel, workload: WorkloadFile, rule: str, settings: Settings) -> list[str]:
    """Labels of the rewrites that may cure a rule's finding and that apply to a kernel as it is."""
    from kernel_lsp.refine.rewrites import CURES, find_rewrites

    language = document.language
    if rule not in CURES or language is None:
        return []
    baseline = Target(language, document.source, document.kernels, kernel, workload).baseline
    try:
        device = find_device(settings.gpu, settings.arch)
    except ConfigurationError:  # there is no such GPU, which compiling says
        return []
    found = find_rewrites(baseline, kernel, device)
    return [c.label for c in found if c.origin.removeprefix("rewrite:") in CURES[rule]]
