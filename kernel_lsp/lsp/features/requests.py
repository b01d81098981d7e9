"""Commands for every editor, and the same as requests for clients that know this server; see docs/lsp-protocol.md.

Whatever takes long is a job: its command answers at once, with the job.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from kernel_lsp.errors import ConfigurationError, SourceError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.documents import path_of, uri_of
from kernel_lsp.lsp.features import edits
from kernel_lsp.lsp.features.code_actions import ask_to_judge_again
from kernel_lsp.lsp.jobs import Wanted, Work
from kernel_lsp.refine.lowering import LANGUAGES
from kernel_lsp.source.files import write_new
from kernel_lsp.workload.spec import workload_path

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server

Json = dict[str, Any]


def refine(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri, kernel?]`: search for a faster variant; the job."""
    uri, kernel = _texts(arguments, 1, 2)
    return _start(ls, Work.REFINE, uri, kernel)


def lower(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri, language]`: write a kernel for a plain PyTorch module in `cuda` or `triton`; the job."""
    uri, language = _texts(arguments, 2, 2)
    return _start(ls, Work.LOWER, uri, label=language)


def check(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri]`: does it compile, run and give the right answers; the job."""
    (uri,) = _texts(arguments, 1, 1)
    return _start(ls, Work.CHECK, uri)


def baseline(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri]`: record what the file costs now as what later checks hold it to; the job."""
    (uri,) = _texts(arguments, 1, 1)
    return _start(ls, Work.BASELINE, uri)


def compare(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri]`: judge the text against the file of the last commit; the job."""
    (uri,) = _texts(arguments, 1, 1)
    return _start(ls, Work.COMPARE, uri)


def rewrite(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri, kernel, label]`: judge one rewrite of a kernel; the job."""
    uri, kernel, label = _texts(arguments, 3, 3)
    return _start(ls, Work.REWRITE, uri, kernel, label)


def cancel(ls: "Server", arguments: Sequence[Any]) -> bool:
    """`[job?]`: end a job, or all of them; whether any was under way."""
    (job,) = _texts(arguments, 0, 1)
    ended = [ls.jobs.cancel(one.id) for one in ls.jobs if job is None or one.id == job]
    return any(ended)


async def apply(ls: "Server", arguments: Sequence[Any]) -> bool:
    """`[uri, verdict]`: have the editor apply a verified variant; whether it did."""
    uri, verdict = _texts(arguments, 2, 2)
    document = ls.documents.read(str(uri))
    standing = await ls.results.of(document)
    for offer in (*standing.offers, *standing.older):
        if offer.verdict.id == verdict:
            try:
                return await edits.apply(ls, document, offer)
            except SourceError as error:
                kernels = offer.kernels
                ls.start(ask_to_judge_again(ls, document, kernels[0].name if len(kernels) == 1 else None, error))
                raise protocol.failed(error, told=True) from None
    raise ConfigurationError("There is no such variant of this text.", document.path, cure="Refine it first.")


async def evidence(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[verdict, uri?]`: show what a verdict rests on, as a page in the editor where that is possible."""
    verdict, uri = _texts(arguments, 1, 2)
    path = _place(uri)
    found = await ls.results.evidence(path, str(verdict))
    page = ls.settings.at(path).paths.cache / "evidence" / f"{found['name']}.md"
    try:
        await asyncio.to_thread(_write, page, found["markdown"])
    except OSError as error:
        cure = f"`kernel-lsp report {found['name']}` shows it in a terminal."
        raise ConfigurationError(f"The page cannot be written: {error.strerror}.", page, cure=cure) from None
    window = ls.client_capabilities.window
    if window is not None and window.show_document is not None and window.show_document.support:
        ls.start(_show(ls, page))
    else:
        ls.show(f"{found['title']}: {page}", types.MessageType.Info)
    return {"path": str(page)} | found


async def draft(ls: "Server", arguments: Sequence[Any]) -> Json:
    """`[uri, kernel?]`: write a first workload beside a kernel file that has none."""
    from kernel_lsp.workload.draft import draft_for  # its patterns take longer to compile than all the rest

    uri, name = _texts(arguments, 1, 2)
    document = ls.documents.read(str(uri))
    path = workload_path(document.path)
    if not document.on_disk:
        raise SourceError("There is no kernel to draft a workload for.", document.path)
    write_new(path, draft_for(document.source, None if name is None else str(name)))
    window = ls.client_capabilities.window
    if window is not None and window.show_document is not None and window.show_document.support:
        ls.start(_show(ls, path))
    else:
        ls.show(f"A draft was written to {path}.", types.MessageType.Info)
    return {"path": str(path)}


def start_job(ls: "Server", params: Any) -> Json:
    """`{work, textDocument: {uri}, kernel?, label?}`: the job, and `joined` where it was under way."""
    given = _object(params)
    try:
        work = Work(given["work"])
        uri, kernel, label = _texts([given["textDocument"]["uri"], given.get("kernel"), given.get("label")], 1, 3)
    except (KeyError, TypeError, ValueError):
        raise JsonRpcInvalidParams("`kernelLsp/startJob` needs `work` and `textDocument.uri`.") from None
    return _start(ls, work, uri, kernel, label)


def cancel_job(ls: "Server", params: Any) -> Json:
    """`{id}`: whether it was under way."""
    return {"cancelled": ls.jobs.cancel(str(_object(params).get("id")))}


def list_jobs(ls: "Server", _: Any) -> Json:
    """Nothing is given: the jobs that there are, and the last of those that there were."""
    return {"jobs": [job.as_json() for job in ls.jobs]}


async def show_evidence(ls: "Server", params: Any) -> Json:
    """`{verdict, textDocument?: {uri}}`: its `name`, `title`, `markdown` and whole `verdict`."""
    given = _object(params)
    verdict, uri = _texts([given.get("verdict"), (given.get("textDocument") or {}).get("uri")], 1, 2)
    return await ls.results.evidence(_place(uri), str(verdict))


COMMANDS: dict[str, Callable[..., Any]] = {
    "kernel-lsp.refine": refine,
    "kernel-lsp.lower": lower,
    "kernel-lsp.check": check,
    "kernel-lsp.compare": compare,
    "kernel-lsp.baseline": baseline,
    "kernel-lsp.rewrite": rewrite,
    "kernel-lsp.cancel": cancel,
    "kernel-lsp.apply": apply,
    "kernel-lsp.evidence": evidence,
    "kernel-lsp.draft": draft,
}

REQUESTS: dict[str, Callable[..., Any]] = {
    "kernelLsp/startJob": start_job,
    "kernelLsp/cancelJob": cancel_job,
    "kernelLsp/jobs": list_jobs,
    "kernelLsp/evidence": show_evidence,
}


def _start(ls: "Server", work: Work, uri: str | None, kernel: str | None = None, label: str | None = None) -> Json:
    document = ls.documents.read(str(uri))
    if kernel is not None and all(k.name != kernel for k in document.kernels):
        raise SourceError(f"There is no kernel {kernel}.", document.path)
    if work is Work.LOWER and label not in LANGUAGES:
        raise JsonRpcInvalidParams(f"A kernel is written in one of {', '.join(LANGUAGES)}.")
    if work is Work.LOWER and document.module is None:
        cure = "It needs `Model`, `get_inputs` and `get_init_inputs`; a file with a `ModelNew` is refined."
        raise SourceError("This is no plain PyTorch module.", document.path, cure=cure)
    job, joined = ls.jobs.start(Wanted(work, document, kernel, label))
    return job.as_json() | {"joined": joined}


def _place(uri: str | None) -> Path:
    """The file whose settings say where the store lies."""
    return (path_of(uri) if uri else None) or Path.cwd() / "untitled"


async def _show(ls: "Server", path: Path) -> None:
    await ls.window_show_document_async(types.ShowDocumentParams(uri_of(path), take_focus=True))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _texts(arguments: Sequence[Any], least: int, most: int) -> list[str | None]:
    """Arguments that are texts, `least` of them at the least; the rest up to `most` may be left out or null."""
    padded = [*arguments, *[None] * (most - len(arguments))]
    if len(padded) != most or any(a is not None and not isinstance(a, str) for a in padded) or None in padded[:least]:
        raise JsonRpcInvalidParams(f"This takes {least} to {most} texts.")
    return padded


def _object(params: Any) -> Json:
    if not isinstance(params, dict):
        raise JsonRpcInvalidParams("The parameters must be an object.")
    return cast(Json, params)
