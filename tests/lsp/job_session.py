"""An editor with the server in a process of its own, for tests of jobs, actions and edits."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Union

from lsprotocol import converters, types
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient

from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.documents import Document
from kernel_lsp.store.store import open_store
from tests.forked_commands import forked
from tests.lsp.raw_client import ROOT, SERVE
from tests.private_home import private_home
from tests.unit.report.sample_verdicts import evidence, faster

CAPABILITIES = Path(__file__).parent / "capabilities"
EVERYTHING = {
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create"]},
        "codeLens": {"refreshSupport": True},
    },
    "textDocument": {
        "codeAction": {
            "dataSupport": True,
            "disabledSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": [""]}},
        }
    },
    "experimental": {"kernelLsp": {"jobProgress": True, "statusChanged": True}},
}


class Editor:
    """One client with its texts, and what the server has said to it."""

    def __init__(self, client: LanguageClient, folder: Path, real: bool) -> None:
        self.client, self.folder, self._real = client, folder, real
        self.texts: dict[str, Document] = {}
        self.jobs: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.asked: list[types.ShowMessageRequestParams] = []
        self.answer: str | None = None
        self.shown: list[str] = []
        self.progress: list[tuple[str, Any]] = []
        self.refreshed = 0
        self.statuses = 0
        self.applied: list[types.WorkspaceEdit] = []
        self.honest = True
        self.agrees_after = 0.0  # seconds, to a progress bar

    @property
    def pid(self) -> int:
        assert self._real, "a fork is no child of the process that this is"
        return self.client._server.pid

    def open(self, path: Path, text: str | None = None, language: str = "python") -> str:
        uri = path.as_uri()
        text = path.read_text() if text is None else text
        self.texts[uri] = Document(uri, path, text, 1, "utf-16")
        item = types.TextDocumentItem(uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def edit(self, uri: str, text: str) -> None:
        old = self.texts[uri]
        self.texts[uri] = Document(uri, old.path, text, old.version + 1, "utf-16")
        name = types.VersionedTextDocumentIdentifier(version=old.version + 1, uri=uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(name, [change]))

    async def actions(self, uri: str, only: Sequence[str] | None = None, line: int = 17, findings=()) -> list[Any]:
        at = types.Range(types.Position(line, 4), types.Position(line, 4))
        context = types.CodeActionContext(list(findings), list(only) if only is not None else None)
        params = types.CodeActionParams(types.TextDocumentIdentifier(uri), at, context)
        return list(await self.client.text_document_code_action_async(params) or [])

    async def command(self, name: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(f"kernel-lsp.{name}", list(arguments))
        return plain(await self.client.workspace_execute_command_async(params))

    async def request(self, name: str, params: Any) -> Any:
        return plain(await self.client.protocol.send_request_async(f"kernelLsp/{name}", params))

    async def until(self, what, seconds: float = 120.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, f"not within {seconds} s; said: {self.said}, jobs: {self.jobs[-1:]}"
            await asyncio.sleep(0.02)
        return found

    async def ended(self, job: str, seconds: float = 200.0) -> dict[str, Any]:
        over = ("done", "failed", "cancelled")
        return await self.until(
            lambda: next((j for j in self.jobs if j["id"] == job and j["state"] in over), None), seconds
        )

    def apply(self, edit: types.WorkspaceEdit) -> bool:
        """As a careful editor does: nothing where a version is another one than its text has."""
        changes = edit.document_changes or [
            types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=None), edits)
            for uri, edits in (edit.changes or {}).items()
        ]
        for change in changes:
            if isinstance(change, types.TextDocumentEdit):
                known = self.texts.get(change.text_document.uri)
                if known and change.text_document.version not in (None, known.version):
                    return False
        for change in changes:
            if isinstance(change, types.CreateFile):
                path = Path(change.uri.removeprefix("file://"))
                path.touch(exist_ok=False)
                self.texts[change.uri] = Document(change.uri, path, "", 0, "utf-16")
                continue
            known = self.texts[change.text_document.uri]
            data = known.text.encode()
            for one in sorted(change.edits, key=lambda e: known.offset(e.range.start), reverse=True):
                start, end = known.offset(one.range.start), known.offset(one.range.end)
                data = data[:start] + one.new_text.encode() + data[end:]
            self.edit(known.uri, data.decode())
        return True


def plain(value: Any) -> Any:
    """What pygls makes of an answer that no type describes, as JSON values again."""
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def _converter() -> Any:
    """lsprotocol reads a code action that carries a command as a bare command."""
    converter = default_converter()

    def structure(value: Any, _: Any) -> Any:
        bare = isinstance(value.get("command"), str)
        return converter.structure(value, types.Command if bare else types.CodeAction)

    converter.register_structure_hook(Union[types.Command, types.CodeAction], structure)  # noqa: UP007
    return converter


@asynccontextmanager
async def editor(
    folder: Path,
    *,
    capabilities: dict[str, Any] | None = None,
    trusted: bool | None = True,
    environment: dict[str, str] | None = None,
    real: bool = False,
    ends_well: bool = True,
    before: Callable[[], None] | None = None,
    **settings: Any,
) -> AsyncGenerator[Editor]:
    """A session in `folder`, with stores and caches below it; settings are by section.

    The server is a fork, see `forked_commands`; `real` starts the command as an editor does, for tests that look at
    its process, end it, limit it (`before` is called in it) or bring modules into it by `sitecustomize`.
    """
    command = [sys.executable, "-c", SERVE, "serve"] if real else forked("serve")
    client = LanguageClient(converter_factory=_converter)
    session = Editor(client, folder, real)
    _listen(client, session)
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests/fixtures"))),
        **private_home(folder / ".home"),
    }
    await client.start_io(*command, env=variables | (environment or {}), preexec_fn=before)
    given = types.ClientCapabilities
    structured = converters.get_converter().structure(EVERYTHING if capabilities is None else capabilities, given)
    options = ({} if trusted is None else {"trusted": trusted}) | settings
    try:
        await client.initialize_session(
            types.InitializeParams(
                structured,
                initialization_options=options,
                workspace_folders=[types.WorkspaceFolder(folder.as_uri(), "here")],
                root_uri=folder.as_uri(),
            )
        )
        yield session
        if ends_well:
            await asyncio.wait_for(client.shutdown_session(), 30)  # on a busy machine its workers take some seconds
    finally:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.stop(), 5)


def _listen(client: LanguageClient, session: Editor) -> None:
    @client.feature("kernelLsp/jobProgress")
    def _(params: Any) -> None:
        session.jobs.append(plain(params))

    @client.feature("kernelLsp/statusChanged")
    def _(_: Any) -> None:
        session.statuses += 1

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: types.PublishDiagnosticsParams) -> None:
        client.diagnostics[params.uri] = params.diagnostics

    @client.feature(types.WORKSPACE_CONFIGURATION)
    def _(params: types.ConfigurationParams) -> list[Any]:
        return [{} for _ in params.items]

    @client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def _(_: types.RegistrationParams) -> None:
        return None

    @client.feature(types.WINDOW_LOG_MESSAGE)
    def _(_: types.LogMessageParams) -> None:
        return None

    @client.feature(types.WINDOW_SHOW_MESSAGE)
    def _(params: types.ShowMessageParams) -> None:
        session.said.append(params.message)

    @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def _(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
        session.asked.append(params)
        return types.MessageActionItem(session.answer) if session.answer else None

    @client.feature(types.WINDOW_SHOW_DOCUMENT)
    def _(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
        session.shown.append(params.uri)
        return types.ShowDocumentResult(True)

    @client.feature(types.WORKSPACE_CODE_LENS_REFRESH)
    def _(_: None) -> None:
        session.refreshed += 1

    @client.feature(types.WORKSPACE_DIAGNOSTIC_REFRESH)
    def _(_: None) -> None:
        return None

    @client.feature(types.WORKSPACE_INLAY_HINT_REFRESH)
    def _(_: None) -> None:
        return None

    @client.feature(types.WORKSPACE_APPLY_EDIT)
    def _(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        session.applied.append(params.edit)
        return types.ApplyWorkspaceEditResult(session.apply(params.edit) if session.honest else True)

    @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
    async def _(_: types.WorkDoneProgressCreateParams) -> None:
        await asyncio.sleep(session.agrees_after)

    @client.feature(types.PROGRESS)
    def _(params: types.ProgressParams) -> None:
        session.progress.append((params.token, plain(params.value)))


def command_line(folder, *arguments):
    """The command line of the user whose editor works in `folder`."""
    home = folder / ".home"
    variables = {f"XDG_{kind.upper()}_HOME": str(home / kind) for kind in ("config", "data", "cache")}
    return subprocess.run(
        [sys.executable, "-c", SERVE, *arguments],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def store_offer(folder: Path, kernel: Path, variant: str, **changes: Any) -> Verdict:
    """A FASTER verdict as an earlier judgement on a GPU would have left it; `launch` is the variant's workload file."""
    verdict = verdict_on(kernel, variant, **changes)
    with open_store(data_of(folder)) as store:
        store.save_verdict(verdict.model_dump(mode="json"))
    return verdict


def verdict_on(kernel: Path, variant: str, **changes: Any) -> Verdict:
    """A FASTER verdict on a variant of a file; `final_checks` goes into its evidence."""
    target = make_target(kernel)
    launch = changes.pop("launch", None)
    final_checks = changes.pop("final_checks", None)
    candidate = target.version(variant, changes.pop("label", "num_warps 4 -> 2"), "tuner", launch)
    sources = {"baseline": target.source.text, "candidate": variant, "workload": target.workload.source.text}
    rests_on = evidence(
        baseline_digest=target.baseline.digest,
        candidate_digest=candidate.digest,
        candidate_label=candidate.label,
        kernel_path=str(kernel),
        workload_path=str(target.workload.source.path),
        sources=sources | ({"candidate_launch": launch} if launch else {}),
        final_checks=final_checks,
    )
    return faster(**({"id": candidate.digest[:20], "evidence": rests_on} | changes))


def data_of(folder: Path) -> Path:
    """Where a session in `folder` keeps its store."""
    return folder / ".home/data/kernel-lsp"


def recorded(name: str) -> dict[str, Any]:
    """The capabilities that a real editor was recorded to send."""
    found = json.loads((CAPABILITIES / f"{name}.json").read_text())
    return found.get("capabilities", found)


def children(pid: int) -> set[int]:
    """The process ids of those that a process has started itself."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= set(map(int, task.read_text().split()))
    return found


def below(pid: int) -> set[int]:
    """The process ids of all that a process has started, and they in turn."""
    return {one for child in children(pid) for one in (child, *below(child))}


async def gone(pids: set[int], seconds: float = 60.0) -> None:
    """Wait until all of them have ended."""
    deadline = time.monotonic() + seconds
    while left := alive(pids):
        assert time.monotonic() < deadline, f"still there: {left}"
        await asyncio.sleep(0.05)


def alive(pids: set[int]) -> set[int]:
    """Those that have not ended."""
    left: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                left.add(pid)
    return left
