"""Code actions: what can be done at a place, cheapest first to answer and computed in full only when picked."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.documents import Document, uri_of
from kernel_lsp.lsp.features import edits
from kernel_lsp.lsp.greeting import BASELINE, CHECK, COMPARE, DRAFT, EVIDENCE, KINDS, QUICK_FIX, REWRITE
from kernel_lsp.lsp.jobs import Wanted, Work
from kernel_lsp.refine.lowering import LANGUAGES, new_path
from kernel_lsp.report.titles import speedup_title
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import source_part
from kernel_lsp.workload.spec import workload_path

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server
    from kernel_lsp.lsp.standing import Standing
    from kernel_lsp.refine.offers import Offer

OPTIONS = types.CodeActionOptions(code_action_kinds=list(KINDS), resolve_provider=True)

_UNTRUSTED = "this folder is not trusted: nothing in it is compiled or run"
_OLDER = "this result is for an older version of the kernel: judge it again"


async def code_actions(ls: "Server", params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
    """The actions at a range."""
    document = ls.documents.get(params.text_document.uri)
    if document is None or not (document.kernels or document.module) or not _wanted(params.context.only, *KINDS):
        return []
    standing = await ls.results.of(document)
    span = document.span(params.range)
    kernels = [k for k in document.kernels if k.span.start <= span.end and span.start <= k.span.end]
    actions: list[types.CodeAction] = []
    for kernel in kernels:
        actions += _of_kernel(ls, document, kernel, standing)
    if document.module is not None:
        actions += _of_module(ls, document, standing)
    actions += _of_file(ls, document, kernels, standing)
    if _wanted(params.context.only, QUICK_FIX):
        actions += await _cures(ls, document, kernels, params.context.diagnostics)
    capability = ls.client_capabilities.text_document.code_action if ls.client_capabilities.text_document else None
    shows_disabled = capability is not None and capability.disabled_support
    return [
        action
        for action in actions
        if _wanted(params.context.only, str(action.kind)) and (shows_disabled or action.disabled is None)
    ]


async def resolve(ls: "Server", action: types.CodeAction) -> types.CodeAction:
    """The action with its edit; one that needs none comes back as it is.

    Raises:
        KernelLspError: what was judged does not stand there any more.
    """
    data: dict[str, Any] = cast("dict[str, Any]", action.data) if isinstance(action.data, dict) else {}
    document = ls.documents.get(str(data.get("uri")))
    if document is None or action.edit is not None:
        return action
    if "verdict" in data:
        standing = await ls.results.of(document)
        found = next((o for o in (*standing.offers, *standing.older) if o.verdict.id == data["verdict"]), None)
        if found is None:
            raise protocol.RequestFailed("The result is not in the store any more.")
        try:
            action.edit, _ = await edits.edit_of(ls, document, found)
        except KernelLspError as error:
            ls.start(ask_to_judge_again(ls, document, data.get("kernel"), error))
            raise
    elif "draft" in data and (kernel := _named(document, data["draft"])) is not None:
        from kernel_lsp.workload.draft import draft_workload  # its patterns take longer to compile than all the rest

        uri = uri_of(workload_path(document.path))
        action.edit = edits.creation(ls, uri, draft_workload(document.source, kernel))
    return action


async def ask_to_judge_again(ls: "Server", document: Document, kernel: str | None, error: KernelLspError) -> None:
    """Say why nothing was applied, and offer to look for a variant of the text as it is now."""
    refine = types.MessageActionItem("Refine it again")
    params = types.ShowMessageRequestParams(types.MessageType.Warning, error.said, [refine])
    answer = await ls.window_show_message_request_async(params)
    if answer is not None and answer.title == refine.title and (now := ls.documents.get(document.uri)) is not None:
        ls.jobs.start(Wanted(Work.REFINE, now, kernel))


def why_not(ls: "Server", document: Document, standing: "Standing", *, timed: bool) -> str | None:
    """Why a text cannot be worked on, for the user; None where it can."""
    if not document.on_disk:
        return "this text is in no file yet: save it first"
    if not ls.is_trusted(document):
        return _UNTRUSTED
    if standing.problem is not None:
        return standing.problem
    if timed and standing.workload is None:
        if document.language is not None and source_part(document.language).launches_itself:
            return f"it has no problem, so nothing says what is right: write {document.path.stem}_problem.py beside it"
        return "it has no workload, so nothing says how it is called and what is right: draft one"
    if timed and ls.jobs.gpu is False and not standing.untimed:
        return "nothing can be timed here, for there is no GPU"
    return None


def _unfit(ls: "Server", document: Document, standing: "Standing") -> str | None:
    """Why a file's costs cannot be what later checks hold it to; None where they can."""
    if (why := why_not(ls, document, standing, timed=False)) is not None:
        return why
    if not standing.saved:
        return "the baseline is of the file, and this text differs from it: save it first"
    if ls.diagnostics.wrong(document.uri):
        return "it has errors: only what is well is recorded"
    return None


def _of_kernel(ls: "Server", document: Document, kernel: Kernel, standing: "Standing") -> Iterator[types.CodeAction]:
    for offer in standing.offers_for(kernel.name):
        title = f"Apply {offer.verdict.evidence.candidate_label}: {speedup_title(offer.verdict)}"
        yield _application(ls, document, offer, title, kernel.name, resolves=_resolves(ls))
    for offer in [o for o in standing.older if any(k.name == kernel.name for k in o.kernels)][:1]:
        title = f"Apply {offer.verdict.evidence.candidate_label}: {speedup_title(offer.verdict)}"
        yield types.CodeAction(title, REWRITE, disabled=types.CodeActionDisabled(_OLDER))
    running = [j for j in ls.jobs.under_way(document.uri, kernel.name) if j.wanted.work is Work.REFINE]
    for job in running:
        yield _command(f"Stop refining {kernel.name} ({job.text})", REWRITE, "cancel", [job.id])
    if not running:
        why = why_not(ls, document, standing, timed=True)
        if why is None:
            ls.jobs.expect(document)
        yield _command(f"Refine {kernel.name}", REWRITE, "refine", [document.uri, kernel.name], why)


def _of_module(ls: "Server", document: Document, standing: "Standing") -> Iterator[types.CodeAction]:
    for offer in unwritten(ls, document, standing):
        name = offer.new_path(document.path).name
        title = f"Write {name} ({offer.verdict.evidence.candidate_label}): {speedup_title(offer.verdict)}"
        yield _application(ls, document, offer, title, resolves=_resolves(ls) and edits.creates(ls))
    running = {j.wanted.label: j for j in ls.jobs.under_way(document.uri) if j.wanted.work is Work.LOWER}
    for language, name in (("cuda", "CUDA"), ("triton", "Triton")):
        if (job := running.get(language)) is not None:
            yield _command(f"Stop writing a {name} kernel ({job.text})", REWRITE, "cancel", [job.id])
        else:
            why = why_not_lowered(ls, document, standing, language)
            yield _command(f"Write a {name} kernel for this module", REWRITE, "lower", [document.uri, language], why)


def why_not_lowered(ls: "Server", document: Document, standing: "Standing", language: str) -> str | None:
    """Why no kernel can be written for a module, for the user; None where one can."""
    if (why := why_not(ls, document, standing, timed=True) or standing.voiceless.get(language)) is not None:
        return why
    place = new_path(document.path, LANGUAGES[language])
    return f"{place.name} is there already: refine that" if _is_there(ls, place) else None


def unwritten(ls: "Server", document: Document, standing: "Standing") -> "list[Offer]":
    """The kernels verified for a module that are in no file yet, best first."""
    return [offer for offer in standing.offers if not _is_there(ls, offer.new_path(document.path))]


def _is_there(ls: "Server", place: Path) -> bool:
    """Whether there is such a file, be it in the editor alone."""
    return place.exists() or ls.documents.at(place) is not None


def _application(
    ls: "Server", document: Document, offer: "Offer", title: str, kernel: str | None = None, *, resolves: bool
) -> types.CodeAction:
    """Apply a variant; its edit is made when the action is picked, where the client can ask for it then."""
    if not resolves:
        return _command(title, REWRITE, "apply", [document.uri, offer.verdict.id])
    given = {"uri": document.uri, "kernel": kernel, "verdict": offer.verdict.id}
    return types.CodeAction(title, REWRITE, data=given)


def _of_file(
    ls: "Server", document: Document, kernels: Sequence[Kernel], standing: "Standing"
) -> Iterator[types.CodeAction]:
    name = document.path.name
    yield _command(f"Check {name}", CHECK, "check", [document.uri], why_not(ls, document, standing, timed=False))
    if document.kernels:
        why = why_not(ls, document, standing, timed=True)
        yield _command(f"Compare {name} with the last commit", COMPARE, "compare", [document.uri], why)
        why = _unfit(ls, document, standing)
        yield _command(f"Record the baseline of {name}", BASELINE, "baseline", [document.uri], why)
    shown = [o.verdict for o in standing.offers]
    named = [(speedup_title(v), v.id) for v in shown]
    if standing.last is not None and all(v.id != standing.last.id for v in shown):
        named.append((f"{standing.last.label}, {standing.last.verdict}", standing.last.id))
    for title, verdict in named:
        yield _command(f"Show the evidence: {title}", EVIDENCE, "evidence", [verdict, document.uri])
    language = document.language
    draftable = document.kernels and language is not None and not source_part(language).launches_itself
    if draftable and standing.workload is None and standing.problem is None and document.on_disk:
        kernel = (kernels or document.kernels)[0]
        title = f"Draft {workload_path(document.path).name} from {kernel.name}"
        if _resolves(ls) and edits.creation(ls, document.uri, "") is not None:
            yield types.CodeAction(title, DRAFT, data={"uri": document.uri, "draft": kernel.name})
        else:
            yield _command(title, DRAFT, "draft", [document.uri, kernel.name])


async def _cures(
    ls: "Server", document: Document, kernels: Sequence[Kernel], findings: Sequence[types.Diagnostic]
) -> list[types.CodeAction]:
    """For each finding that rewrites may cure: judge those that apply here. What is faster then becomes an offer."""
    cured: dict[tuple[str, str], list[types.Diagnostic]] = {}
    for finding in findings:
        for kernel in kernels:
            for label in await ls.results.cures(document, kernel, str(finding.code or "")):
                cured.setdefault((kernel.name, label), []).append(finding)
    why = why_not(ls, document, await ls.results.of(document), timed=True) if cured else None
    actions: list[types.CodeAction] = []
    for (kernel_name, label), of in cured.items():
        action = _command(f"Judge a cure: {label}", QUICK_FIX, "rewrite", [document.uri, kernel_name, label], why)
        action.diagnostics = of
        actions.append(action)
    return actions


def _command(
    title: str, kind: str, command: str, arguments: list[Any], disabled: str | None = None
) -> types.CodeAction:
    action = types.CodeAction(title, kind, command=types.Command(title, f"kernel-lsp.{command}", arguments=arguments))
    if disabled is not None:
        action.disabled, action.command = types.CodeActionDisabled(disabled), None
    return action


def _resolves(ls: "Server") -> bool:
    """Whether the client asks for an action's edit when it is picked, and keeps its data until then."""
    text_document = ls.client_capabilities.text_document
    capability = text_document.code_action if text_document else None
    if capability is None or not capability.data_support or capability.resolve_support is None:
        return False
    return "edit" in capability.resolve_support.properties


def _wanted(only: Sequence[str] | None, *kinds: str) -> bool:
    """Whether one of the kinds is, or lies under, one that was asked for."""
    return only is None or any(kind == o or kind.startswith(f"{o}.") or not o for kind in kinds for o in only)


def _named(document: Document, name: str) -> Kernel | None:
    return next((kernel for kernel in document.kernels if kernel.name == name), None)
