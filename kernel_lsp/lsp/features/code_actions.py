"""Code actions at a place; cheap to list, and computed in full only when the user picks one."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types

from kernel_lsp.capture.adopt import adopted_name
from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.catalog import (
    ACTION_KINDS,
    CAPTURE,
    CAPTURES,
    CHECK,
    DRAFT,
    EVIDENCE,
    PREFIX,
    QUICK_FIX,
    REWRITES,
    JobKind,
    JobSubject,
    jobs_on,
)
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.features import rule_fixes
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.readiness import Readiness
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.uris import uri_of
from kernel_lsp.report.captured_calls import of_kernel
from kernel_lsp.report.titles import speedup_title
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.workload.spec import draft_line, kernel_file_of, workload_path

if TYPE_CHECKING:
    from kernel_lsp.lsp.document_status import DocumentStatus
    from kernel_lsp.refine.offers import FileEdits, Offer

OPTIONS = types.CodeActionOptions(code_action_kinds=list(ACTION_KINDS), resolve_provider=True)

_OLDER = "this result is for an older version of the kernel: judge it again"


class CodeActions:
    """Offers what can be done at a place: jobs, variants that were found, their evidence, drafts of workloads, fixes.

    For a running job it offers to stop it; a job that lacks something is listed as disabled, with the reason.
    """

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        results: StoredVerdicts,
        jobs: Jobs,
        checks: KnownChecks,
        readiness: Readiness,
        edits: Edits,
    ) -> None:
        self._client, self._background, self._documents = client, background, documents
        self._results, self._jobs, self._checks = results, jobs, checks
        self._readiness, self._edits = readiness, edits

    async def actions(self, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        """Return the actions at a range."""
        document = self._documents.get(params.text_document.uri)
        only = params.context.only
        if document is None or not _wanted(only, *ACTION_KINDS):
            return []
        use = [*_use(document)] if _wanted(only, QUICK_FIX) else []
        if not (document.kernels or document.module):
            return [*use]
        status = await self._results.of(document)
        span = document.span(params.range)
        kernels = [k for k in document.kernels if k.span.start <= span.end and span.start <= k.span.end]
        actions: list[types.CodeAction] = [*self._trust(document), *use]
        for kernel in kernels:
            actions += self._of_kernel(document, kernel, status)
        if document.module is not None:
            actions += self._of_module(document, status)
        actions += self._of_file(document, status)
        actions += self._evidence(document, status)
        actions += self._draft(document, kernels, status)
        actions += self._capture(document, kernels, status)
        if _wanted(only, QUICK_FIX):
            actions += rule_fixes.judged(document, self._checks.fixes(document), params.context.diagnostics)
            actions += await self._of_findings(document, kernels, status, params.context.diagnostics)
            actions += rule_fixes.explanations(params.context.diagnostics)
            actions += rule_fixes.ignores(document, params.context.diagnostics)  # last: editors pick the first on Enter
        shows_disabled = self._client.shows_disabled_actions
        return [
            action
            for action in actions
            if _wanted(only, str(action.kind)) and (shows_disabled or action.disabled is None)
        ]

    async def resolve(self, action: types.CodeAction) -> types.CodeAction:
        """Return the action with its edit; one without an edit is returned unchanged.

        Raises:
            KernelLspError: what was judged does not stand there any more.
        """
        data: dict[str, Any] = cast("dict[str, Any]", action.data) if isinstance(action.data, dict) else {}
        document = self._documents.get(str(data.get("uri")))
        if document is None or action.edit is not None:
            return action
        if "verdict" in data:
            found = (await self._results.of(document)).offer(data["verdict"])
            if found is None:
                raise protocol.RequestFailed("The result is not in the store any more.")
            if found.pending:
                raise protocol.RequestFailed("Its final checks are under way. It can be applied once they have passed.")
            try:
                action.edit, placed = await self._edits.edit_of(document, found)
            except KernelLspError as error:
                self._background.start(self._edits.ask_to_judge_again(document, data.get("kernel"), error))
                raise
            if self._client.wants_job_progress:  # that is our extension, which has this command
                action.command = _showing(placed[0], data["verdict"])
        return action

    def _trust(self, document: Document) -> Iterator[types.CodeAction]:
        if document.on_disk and not self._readiness.covers(document):
            folder = document.path.parent
            title = f"Trust {folder.name or folder}: compile and run what is in it"
            yield _command(title, QUICK_FIX, "trust", [uri_of(folder)])

    def _of_kernel(self, document: Document, kernel: Kernel, status: "DocumentStatus") -> Iterator[types.CodeAction]:
        for offer in status.offers_for(kernel.name):
            title = f"Apply {offer.verdict.evidence.candidate_label}: {speedup_title(offer.verdict)}"
            yield self._application(document, offer, title, kernel.name, resolves=self._client.resolves_edits)
        for offer in [o for o in status.older if any(k.name == kernel.name for k in o.kernels)][:1]:
            title = f"Apply {offer.verdict.evidence.candidate_label}: {speedup_title(offer.verdict)}"
            yield types.CodeAction(title, REWRITES, disabled=types.CodeActionDisabled(_OLDER))
        for kind in jobs_on(JobSubject.KERNEL):
            yield from self._job(kind, document, status, kernel.name)

    def _of_module(self, document: Document, status: "DocumentStatus") -> Iterator[types.CodeAction]:
        for offer in self._edits.unwritten(document, status):
            name = offer.new_path(document.path).name
            title = f"Write {name} ({offer.verdict.evidence.candidate_label}): {speedup_title(offer.verdict)}"
            resolves = self._client.resolves_edits and self._client.creates_files
            yield self._application(document, offer, title, resolves=resolves)
        for kind in jobs_on(JobSubject.MODULE):
            for choice in kind.choices:
                yield from self._job(kind, document, status, choice=choice)

    def _job(
        self,
        kind: JobKind,
        document: Document,
        status: "DocumentStatus",
        kernel: str | None = None,
        choice: tuple[str | None, str] = (None, ""),
    ) -> Iterator[types.CodeAction]:
        """Yield the action that stops the job if it runs, else the one that starts it; `choice` is label and title."""
        label, shown = choice
        named = {"name": kernel or document.path.name, "label": shown}
        running = self._jobs.running(kind, document.uri, kernel, label) if kind.stop else []
        for job in running:
            yield _command(f"{kind.stop.format(**named)} ({job.text})", kind.action_kind, "cancel", [job.id])
        if running:
            return
        why = self._readiness.why_not(kind, document, status, label)
        if why is None and kernel is not None and kind.is_judging:
            self._jobs.expect(document)
        arguments = [document.uri, *(one for one in (kernel, label) if one is not None)]
        yield _command(kind.action.format(**named), kind.action_kind, kind.name, arguments, why)

    def _of_file(self, document: Document, status: "DocumentStatus") -> Iterator[types.CodeAction]:
        kinds = jobs_on(JobSubject.FILE) + (jobs_on(JobSubject.KERNEL_FILE) if document.kernels else [])
        for kind in kinds:
            yield from self._job(kind, document, status)

    def _evidence(self, document: Document, status: "DocumentStatus") -> Iterator[types.CodeAction]:
        shown = [offer.verdict for offer in status.offers]
        named = [(speedup_title(verdict), verdict.id) for verdict in shown]
        if status.last is not None and all(verdict.id != status.last.id for verdict in shown):
            named.append((f"{status.last.label}, {status.last.verdict}", status.last.id))
        for title, verdict in named:
            yield _command(f"Show the evidence: {title}", EVIDENCE, "evidence", [verdict, document.uri])

    def _draft(
        self, document: Document, kernels: Sequence[Kernel], status: "DocumentStatus"
    ) -> Iterator[types.CodeAction]:
        if status.draft is not None:
            yield _command(f"Finish the draft {status.draft.name}", DRAFT, "draft", [document.uri])
        elif self._readiness.can_draft(document, status):
            kernel = (kernels or document.kernels)[0]
            title = f"Draft {workload_path(document.path).name} from {kernel.name}"
            yield _command(title, DRAFT, "draft", [document.uri, kernel.name])

    def _capture(
        self, document: Document, kernels: Sequence[Kernel], status: "DocumentStatus"
    ) -> Iterator[types.CodeAction]:
        """Yield the actions that capture a run, and that write its workloads out for an author."""
        if not document.kernels:
            return
        if running := self._jobs.running(CAPTURE, document.uri):
            for job in running:
                title = f"{CAPTURE.stop.format(label=job.wanted.label)} ({job.text})"
                yield _command(title, CAPTURES, "cancel", [job.id])
        else:
            named = CAPTURE.action.format(label=status.program) if status.program else "Capture a run"
            why = self._readiness.why_not(CAPTURE, document, status)
            arguments = [document.uri, *([status.program] if status.program else [])]
            yield _command(named, CAPTURES, CAPTURE.name, arguments, why)
        if status.workload is None or not status.workload.captured:
            return
        here = [kernel.name for kernel in kernels or document.kernels]
        for capture in status.captures:
            if any(of_kernel([capture], name) for name in here):
                title = f"Adopt this capture: {adopted_name(capture)}"
                yield _command(title, CAPTURES, "adopt", [document.uri, capture.function])

    async def _of_findings(
        self,
        document: Document,
        kernels: Sequence[Kernel],
        status: "DocumentStatus",
        findings: Sequence[types.Diagnostic],
    ) -> list[types.CodeAction]:
        """Return actions that judge the rewrites which may fix a finding here; faster ones become suggestions."""
        fixed: dict[tuple[str, str], list[types.Diagnostic]] = {}
        for finding in findings:
            for kernel in kernels:
                for label in await self._results.fixes(document, kernel, str(finding.code or "")):
                    fixed.setdefault((kernel.name, label), []).append(finding)
        actions: list[types.CodeAction] = []
        for kind in jobs_on(JobSubject.FINDING):
            for (kernel_name, label), of in fixed.items():
                for action in self._job(kind, document, status, kernel_name, (label, label)):
                    action.diagnostics = of
                    actions.append(action)
        return actions

    def _application(
        self, document: Document, offer: "Offer", title: str, kernel: str | None = None, *, resolves: bool
    ) -> types.CodeAction:
        """Return the action that applies a variant; its edit is made when picked, if the client supports that.

        One whose final checks are under way is applied by the command alone, which asks the user first.
        """
        if not resolves or offer.pending:
            return _command(title, REWRITES, "apply", [document.uri, offer.verdict.id])
        given = {"uri": document.uri, "kernel": kernel, "verdict": offer.verdict.id}
        return types.CodeAction(title, REWRITES, data=given)


def _use(document: Document) -> Iterator[types.CodeAction]:
    """Yield the action that accepts a draft, and checks the kernel file that it is for."""
    if (line := draft_line(document.text)) is None or not document.on_disk:
        return
    mark = document.range_at(line, 1, line + 1, 1)
    action = types.CodeAction("Use this workload", QUICK_FIX, is_preferred=True)
    action.edit = types.WorkspaceEdit(changes={document.uri: [types.TextEdit(mark, "")]})
    if (kernel := kernel_file_of(document.source)) is not None:
        action.command = types.Command("Check", PREFIX + CHECK.name, arguments=[uri_of(kernel)])
    yield action


def _command(
    title: str, kind: str, command: str, arguments: list[Any], disabled: str | None = None
) -> types.CodeAction:
    action = types.CodeAction(title, kind, command=types.Command(title, PREFIX + command, arguments=arguments))
    if disabled is not None:
        action.disabled, action.command = types.CodeActionDisabled(disabled), None
    return action


def _showing(change: "FileEdits", verdict: str) -> types.Command:
    """Return the command that brings the first line of an applied change into view."""
    line = change.file.text.encode()[: change.edits[0].span.start].count(b"\n")
    return types.Command("Show the change", "kernelLsp.applied", arguments=[uri_of(change.file.path), line, verdict])


def _wanted(only: Sequence[str] | None, *kinds: str) -> bool:
    """Return True if one of the kinds was asked for, or is below one that was."""
    return only is None or any(kind == o or kind.startswith(f"{o}.") or not o for kind in kinds for o in only)
