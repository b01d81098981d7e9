"""Suggest variants that were found faster, and make the edits that apply one to the current text.

A suggestion is valid for the text that was judged, as long as that text still stands in the file: moved is fine,
changed is not. It needs no session: whoever opens the same file later gets the same suggestions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.refine.kernel_generation import LANGUAGES, is_plain_module, new_path, require_room
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.editing import minimal_edits, regions, relocate
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.unchanged import still_holds
from kernel_lsp.store.store import Store, VerdictRow


@dataclass(frozen=True, slots=True)
class FileEdits:
    """Edits of one file as it is now."""

    file: SourceFile
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Offer:
    """A variant with the verdict FASTER, which can be applied; a pending one only where the user says so."""

    verdict: Verdict

    @property
    def pending(self) -> bool:
        """True while the final checks of the gain are under way, which may take it back."""
        return self.verdict.evidence.final_checks is FinalChecks.UNDER_WAY

    @cached_property
    def judged(self) -> SourceFile:
        """Return the kernel file as it was judged."""
        evidence = self.verdict.evidence
        return SourceFile(Path(evidence.kernel_path), evidence.sources["baseline"])

    @cached_property
    def creates(self) -> bool:
        """True for a kernel generated for a plain module: it becomes a new file, and the module is not changed."""
        return is_plain_module(self.judged)

    def new_path(self, module: Path) -> Path:
        """Return the path of the new kernel file for a module at `module`."""
        written_in = language_of(module, self.verdict.evidence.sources["candidate"])
        return new_path(module, next((one for one in LANGUAGES.values() if one is written_in), Language.TORCH))

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """Return the variant's edits of the kernel file; none for a module."""
        if self.creates:
            return ()
        return minimal_edits(self.judged.text, self.verdict.evidence.sources["candidate"])

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels that the variant changes; all of the file's if it changes the launch."""
        found = find_kernels(self.judged.text, self.judged.path)
        inside = [k for k in found if any(k.span.holds(edit.span) for edit in self.edits)]
        within = all(any(k.span.holds(edit.span) for k in found) for edit in self.edits)
        return tuple(inside) if inside and within and self.launch is None else found

    @property
    def launch(self) -> str | None:
        """Return the workload file with the variant's `launch`, None if that does not change."""
        return self.verdict.evidence.sources.get("candidate_launch")

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """Return the texts that must still be in the kernel file: the changed kernels, and the lines of other edits."""
        data = self.judged.text.encode()
        return tuple(data[s.start : s.end].decode() for s in regions(data, self.edits, self.kernels))

    def may_fit(self, text: str) -> bool:
        """Return True if the variant may apply to this text; quick, and always True where `place` succeeds."""
        if self.creates:
            return still_holds(text, self.judged.text, self.judged.path)
        return all(region in text for region in self.regions)

    def is_applied(self, text: str) -> bool:
        """Return True if the kernels in this text are already the variant's."""
        if self.creates:
            return False
        file = SourceFile(self.judged.path, self.verdict.evidence.sources["candidate"])
        data = file.text.encode()
        names = {k.name for k in self.kernels}
        after = [k for k in find_kernels(file.text, file.path) if k.name in names]
        return all(data[k.span.start : k.span.end].decode() in text for k in after) and not self.may_fit(text)

    def place(self, kernel_file: SourceFile, workload: SourceFile | None) -> tuple[FileEdits, ...]:
        """Return the edits that turn the current files into the variant.

        Args:
            kernel_file: as it is now.
            workload: the workload's file as it is now; None where the kernel file holds it.

        Raises:
            SourceError: what was judged does not stand there any more.
        """
        sources = self.verdict.evidence.sources
        judged, touched = self.judged, self.kernels
        if self.creates:
            if not self.may_fit(kernel_file.text):
                raise _older(kernel_file.path)
            made = self.new_path(kernel_file.path)
            require_room(made)
            return (FileEdits(SourceFile(made, ""), (Edit(Span(0, 0), sources["candidate"]),)),)
        others = [k for k in find_kernels(judged.text, judged.path) if k not in touched]
        if not still_holds(kernel_file.text, judged.text, judged.path, others):
            raise _older(kernel_file.path)
        changed = [FileEdits(kernel_file, self._moved(self.edits, judged.text, kernel_file, touched))]
        if self.verdict.evidence.workload_path != self.verdict.evidence.kernel_path:
            before = sources["workload"]
            if workload is None or not still_holds(workload.text, before, workload.path):
                raise _older(kernel_file.path)
            if self.launch is not None:
                edits = self._moved(minimal_edits(before, self.launch), before, workload, ())
                changed.append(FileEdits(workload, edits))
        return tuple(one for one in changed if one.edits)

    def _moved(
        self, edits: Sequence[Edit], judged: str, file: SourceFile, kernels: Sequence[Kernel]
    ) -> tuple[Edit, ...]:
        found = relocate(edits, judged, file.text, kernels)
        if found is None:
            raise _older(file.path)
        return found


KnownOffers = dict[tuple[str, float], Offer]
"""Verdicts read before, by their id and when they were written, each as the offer that it makes if it is FASTER."""


def find_offers(
    store: Store, baseline: Candidate, known: KnownOffers | None = None, unsaved: Sequence[Verdict] = ()
) -> tuple[Offer, ...]:
    """Return the faster variants known for a file, best first, found by its text or by its path.

    Of a variant judged several times with one workload the newest verdict counts. A variant that fails with one of the
    file's workloads is no suggestion, however fast it is with another. Some may be for another version of the file; the
    file's own text is left out.

    Args:
        store: where verdicts lie.
        baseline: the file as it is now.
        known: verdicts read before, to save reading them again.
        unsaved: verdicts on versions of the file that could not be stored, newest last.
    """
    known = {} if known is None else known
    rows = store.find_verdicts(str(baseline.kernel.path), baseline.digest)
    faster = {row.candidate for row in rows if row.verdict == Outcome.FASTER}
    faster |= {v.evidence.candidate_digest for v in unsaved if v.verdict is Outcome.FASTER}
    newest: dict[tuple[str, str], Offer] = {}
    read = (_read(store, row, known) for row in rows if row.candidate in faster)
    for judged in (*map(Offer, reversed(unsaved)), *filter(None, read)):
        evidence = judged.verdict.evidence
        newest.setdefault((evidence.candidate_digest, evidence.workload_path), judged)
    failed = {digest for (digest, _), judged in newest.items() if judged.verdict.verdict.is_failure}
    found: dict[str, Offer] = {}
    for (digest, _), judged in newest.items():
        if judged.verdict.verdict is Outcome.FASTER and digest not in failed and digest != baseline.digest:
            found.setdefault(digest, judged)
    return tuple(sorted(found.values(), key=lambda offer: offer.verdict.speedup or 0.0, reverse=True))


def _read(store: Store, row: VerdictRow, known: KnownOffers) -> Offer | None:
    """Return the verdict of a row; None if it is gone."""
    key = row.id, row.created
    if key not in known and (document := store.find_verdict(row.id)) is not None:
        known[key] = Offer(Verdict.model_validate(document))
    return known.get(key)


def _older(path: Path) -> SourceError:
    return SourceError("This result is for an older version of the kernel.", path, fix="Judge it again?")
