"""The store's knowledge of a text, and the variants that apply. For threads: it waits for the disk.

Imports that only some sessions need are made on use: prompts and an HTTP client take 13 MiB.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import find_device
from kernel_lsp.errors import ConfigurationError, DraftError, KernelLspError, SourceError, WorkloadError
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.documents import Document
from kernel_lsp.refine.kernel_generation import LANGUAGES
from kernel_lsp.refine.offers import KnownOffers, Offer, find_offers
from kernel_lsp.report.units import percent_text, time_text
from kernel_lsp.source.files import read_source
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.store.store import Store, VerdictRow
from kernel_lsp.workload.capture import Capture, find_captures, read_capture
from kernel_lsp.workload.spec import WorkloadFile, find_workloads

_LOOKED_AT = 50  # latest verdicts on a file that are read


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """The known results for one text.

    Attributes:
        workload: its workload, if it has one that can be used.
        problem: why its workload cannot be used; None also if it has none.
        draft: the file of its workload, if that is a draft.
        broken: the file of its workload, if that cannot be used and is no draft.
        offers: variants found faster that are for this text as it is, best first.
        older: variants that were found faster than another version of it, best first.
        last: the latest verdict on a version of the text.
        timings: for each workload with which exactly this text was timed, the last time as text, with the workload's
            name if there are several, and the id of the verdict with that measurement.
        captures: what programs were seen to do with the file.
        untimed: True if the settings allow a search without a GPU.
        program: the one that a capture runs; empty if the settings name none.
        saved: True if the file on disk has this text.
        voiceless: of a plain module, why no model can be asked for a kernel, by its language where that is so.
    """

    workload: WorkloadFile | None = None
    problem: str | None = None
    draft: Path | None = None
    broken: Path | None = None
    offers: tuple[Offer, ...] = ()
    older: tuple[Offer, ...] = ()
    last: VerdictRow | None = None
    timings: tuple[tuple[str, str], ...] = ()
    captures: tuple[Capture, ...] = ()
    untimed: bool = False
    program: str = ""
    saved: bool = False
    voiceless: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def measured(self) -> str | None:
        """Return all timings in one line; None without one."""
        return "; ".join(text for text, _ in self.timings) or None

    def offer(self, verdict: str) -> Offer | None:
        """Return the variant, older ones included, with this verdict; None without one."""
        return next((one for one in (*self.offers, *self.older) if one.verdict.id == verdict), None)

    def offers_for(self, kernel: str | None) -> list[Offer]:
        """Return the suggestions that change a kernel."""
        return [o for o in self.offers if kernel is None or any(k.name == kernel for k in o.kernels)]


def look(
    store: Store,
    known: KnownOffers,
    unsaved: list[dict[str, Any]],
    document: Document,
    texts: dict[Path, str],
    settings: Settings,
) -> DocumentStatus:
    """Return the known results for a text.

    Args:
        store: where verdicts lie.
        known: offers read before.
        unsaved: verdicts that could not be stored.
        document: the text.
        texts: the open texts by path.
        settings: in force at the text, which say where workloads and problems lie.
    """
    captures = tuple(_captures(document, settings)) if document.on_disk else ()
    status = DocumentStatus(saved=_is_saved(document), captures=captures)
    language = document.language
    if language is None:
        return status
    verdicts = [v for v in map(Verdict.model_validate, unsaved) if v.evidence.kernel_path == str(document.path)]
    last = _row(verdicts[-1]) if verdicts else next(iter(store.list_verdicts(str(document.path), limit=1)), None)
    try:
        workloads = find_workloads(
            document.source, texts=texts, problems=settings.kernelbench.root, folders=settings.workloads
        )
    except WorkloadError as error:
        draft, broken = (error.path, None) if isinstance(error, DraftError) else (None, error.path)
        return replace(status, problem=_said(error), draft=draft, broken=broken, last=last)
    if not workloads:
        return replace(status, last=last)
    targets = [Target(language, document.source, document.kernels, None, workload) for workload in workloads]
    every = {offer.verdict.id: offer for one in targets for offer in find_offers(store, one.baseline, known, verdicts)}
    found = tuple(every.values())
    fitting = tuple(offer for offer in found if offer.may_fit(document.text))
    older = tuple(o for o in found if o not in fitting and not o.is_applied(document.text))
    timings = tuple(timing for one in targets if (timing := _measured(store, one, named=len(targets) > 1)))
    return replace(status, workload=workloads[0], offers=fitting, older=older, last=last, timings=timings)


def _captures(document: Document, settings: Settings) -> Iterator[Capture]:
    """Yield the captures of a file that can be read."""
    for path in find_captures(document.path, settings.workloads):
        with suppress(SourceError, WorkloadError):
            yield read_capture(read_source(path).text, path)


def _is_saved(document: Document) -> bool:
    try:
        return document.on_disk and read_source(document.path).text == document.text
    except SourceError:
        return False


def _said(error: WorkloadError) -> str:
    """Return an error as it is read beside its file: first the file's name, which needs no folders there."""
    if error.path is None:
        return error.said
    return f"{error.path.name}{f':{error.line}' if error.line else ''}: {error.said}"


def _row(verdict: Verdict) -> VerdictRow:
    """Return a verdict that is in no store, as the store would list it."""
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


def _measured(store: Store, target: Target, *, named: bool) -> tuple[str, str] | None:
    """Return time and id of the last verdict that timed a target's text, as either side, on its longest case."""
    text, workload = target.baseline, target.workload.source.path
    for row in store.find_verdicts(str(text.kernel.path), text.digest, limit=_LOOKED_AT):
        is_baseline = row.baseline == text.digest
        if row.speedup is None or not (is_baseline or row.candidate == text.digest):
            continue
        document = store.find_verdict(row.id)
        verdict = Verdict.model_validate(document) if document is not None else None
        cases = verdict.cases if verdict is not None else ()
        if verdict is None or not cases or (named and verdict.evidence.workload_path != str(workload)):
            continue
        longest = max(cases, key=lambda case: case.baseline_us)
        time = longest.baseline_us if is_baseline else longest.candidate_us
        share = longest.baseline_roofline_share if is_baseline else longest.roofline_share
        of_roofline = f", {percent_text(share)} of roofline" if share is not None else ""
        return f"{f'{workload.stem}: ' if named else ''}{time_text(time)}{of_roofline} ({longest.case})", row.id
    return None


def find_voiceless(document: Document, settings: Settings) -> dict[str, str]:
    """Return why no model can be asked to generate a kernel for a module, by language; only failing languages."""
    from kernel_lsp.refine.run import require_way

    found: dict[str, str] = {}
    for language in LANGUAGES:
        refine = settings.refine.model_copy(update={"write": language})
        try:
            require_way(document.source, settings.model_copy(update={"refine": refine}))
        except KernelLspError as error:
            found[language] = error.message
    return found


def rewrites_that_fix(
    document: Document, kernel: Kernel, workload: WorkloadFile, rule: str, settings: Settings
) -> list[str]:
    """Return labels of the rewrites that may fix a rule's finding and that apply to a kernel as it is."""
    from kernel_lsp.refine.rewrites import FIXES, find_rewrites

    language = document.language
    if rule not in FIXES or language is None:
        return []
    baseline = Target(language, document.source, document.kernels, kernel, workload).baseline
    try:
        device = find_device(settings.gpu, settings.arch)
    except ConfigurationError:  # the setting `gpu` names none, which compiling reports
        return []
    found = find_rewrites(baseline, kernel, device)
    return [c.label for c in found if c.origin.removeprefix("rewrite:") in FIXES[rule]]
