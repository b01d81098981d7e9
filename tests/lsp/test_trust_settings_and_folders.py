"""What the server may do, how it is set, and which files it sees change, in a real server process."""

import asyncio

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.lsp.job_session import children, command_line, editor, recorded
from tests.lsp.test_diagnostics import BAD, GOOD, messages
from tests.lsp.test_reading_features import SCALE, eventually, lenses

WATCHES_ITSELF = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": False}}}
ASKS = {"window": {"showMessage": {}}}

pytestmark = pytest.mark.asyncio


async def hint_lines(session, uri):
    params = types.InlayHintParams(
        types.TextDocumentIdentifier(uri), types.Range(types.Position(0, 0), types.Position(99, 0))
    )
    return await session.client.text_document_inlay_hint_async(params)


async def test_an_untrusted_workspace_is_parsed_and_nothing_else(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("import triton\nopen('ran', 'w')\n\n@triton.jit\ndef k(x):\n    pass\n")
    (tmp_path / "k_workload.py").write_text("open('ran', 'w')\nCASES = [{}]\ndef inputs(): ...\ndef reference(): ...\n")
    async with editor(tmp_path, real=True, trusted=False) as session:
        before = children(session.pid)
        uri = session.open(file)
        other = session.open(tmp_path / "scale.cu", BAD, "cuda")
        assert [title for _, title in await lenses(session, uri)] == [f"Not trusted: trust {tmp_path.name}"]
        params = types.DocumentSymbolParams(types.TextDocumentIdentifier(uri))
        assert [one.name for one in await session.client.text_document_document_symbol_async(params)] == ["k"]
        await asyncio.sleep(1)
        assert messages(session, other) == []
        assert children(session.pid) == before == set()
        assert not list(tmp_path.rglob("ran"))


async def test_trust_comes_and_goes_by_command(tmp_path):
    async with editor(tmp_path, trusted=False) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        assert await lenses(session, uri) == [(0, f"Not trusted: trust {tmp_path.name}")]
        assert await session.command("trust") == [str(tmp_path)]
        await session.until(lambda: messages(session, uri))
        assert await session.command("untrust", tmp_path.as_uri()) == [str(tmp_path)]
        await session.until(lambda: not messages(session, uri))
        assert [title for _, title in await lenses(session, uri)] == [f"Not trusted: trust {tmp_path.name}"]


async def test_trust_never_says_of_a_good_kernel_that_it_does_not_compile(tmp_path):
    """Neither when it is given nor when it is given anew, in any lens until the facts come."""
    async with editor(tmp_path, trusted=False) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        for _ in range(2):
            await lenses(session, uri)
            await session.command("trust")
            seen = [title for _, title in await lenses(session, uri)]
            async with asyncio.timeout(60):
                while not any("regs" in title for title in seen):
                    seen += [title for _, title in await lenses(session, uri)]
            assert "compiling" in seen
            assert not any("compile" in title and title != "compiling" for title in seen), set(seen)
            await session.command("untrust", tmp_path.as_uri())


@pytest.mark.thorough
async def test_a_trusted_window_vouches_for_what_its_user_opens(tmp_path):
    """A single file from elsewhere, as `code kernel.cu` opens it."""
    folder, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    async with editor(folder) as session:
        uri = session.open(elsewhere / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        await session.command("untrust", elsewhere.as_uri())
        await session.until(lambda: not messages(session, uri))
        assert session.said == []


@pytest.mark.thorough
async def test_an_editor_without_trust_is_told_once_why_nothing_is_compiled(tmp_path):
    async with editor(tmp_path, trusted=None) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        session.open(tmp_path / "other.cu", GOOD, "cuda")
        session.open(tmp_path / "plain.py", "x = 1\n")
        [trust] = await session.actions(uri, only=["quickfix"], line=0)
        [said] = session.said
        assert said.startswith("Nothing is compiled or run in a folder that is not trusted.")
        assert said.endswith(f"({tmp_path})"), "a long path in front would hide what is wrong"
        await session.command("trust", *trust.command.arguments)
        await session.until(lambda: messages(session, uri))


@pytest.mark.parametrize("answer", ["Trust", "Always", "Not Now", None])
async def test_an_editor_without_trust_is_asked_once_for_each_folder(answer, tmp_path):
    """Trust holds for this session, and Always for later ones too; whoever says no is not asked again."""
    (tmp_path / "inside").mkdir()
    async with editor(tmp_path, trusted=None, capabilities=ASKS) as session:
        session.answer = answer
        uri = session.open(tmp_path / "inside/scale.cu", BAD, "cuda")
        [asked] = await session.until(lambda: session.asked)
        assert asked.message == (
            f"Kernel LSP: Nothing is compiled or run in a folder that is not trusted. Trust {tmp_path}?"
        )
        assert [action.title for action in asked.actions] == ["Trust", "Always", "Not Now"]
        other = session.open(tmp_path / "other.cu", BAD, "cuda")
        if answer in ("Trust", "Always"):
            await session.until(lambda: messages(session, uri) and messages(session, other))
        else:
            named = f"Not trusted: trust {tmp_path.name}"  # the folder of the question, also from further inside
            assert [title for one in (other, uri) for _, title in await lenses(session, one)] == [named, named]
        assert len(session.asked) == 1
        assert session.said == []
    kept = [*(tmp_path / ".home").rglob("trusted.json")]
    assert [one.read_text().count(str(tmp_path)) for one in kept] == ([1] if answer == "Always" else [])


async def test_nobody_is_asked_for_trust_that_the_editor_itself_asks_for(tmp_path):
    async with editor(tmp_path, trusted=False, capabilities=ASKS) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        assert [title for _, title in await lenses(session, uri)] == [f"Not trusted: trust {tmp_path.name}"]
        assert (session.asked, session.said) == ([], [])


@pytest.mark.thorough
async def test_trust_given_on_the_command_line_is_seen_at_once_by_a_newcomers_server(tmp_path):
    assert not (tmp_path / ".home/config/kernel-lsp").exists()
    async with editor(tmp_path, trusted=False) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        done = await asyncio.to_thread(command_line, tmp_path, "trust", ".")
        assert (done.returncode, done.stdout.replace("\n", "")) == (0, str(tmp_path))
        await session.until(lambda: messages(session, uri))
        await asyncio.to_thread(command_line, tmp_path, "untrust", ".")
        await session.until(lambda: not messages(session, uri))


@pytest.mark.thorough
async def test_a_session_that_the_client_vouches_for_leaves_no_trust_behind(tmp_path):
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
    assert not list((tmp_path / ".home").rglob("trusted.json"))


@pytest.mark.thorough
async def test_only_a_folder_that_exists_can_be_trusted(tmp_path):
    async with editor(tmp_path, trusted=False) as session:
        with pytest.raises(JsonRpcException, match="no such folder") as refused:
            await session.command("trust", str(tmp_path / "nowhere"))
        assert refused.value.code == types.LSPErrorCodes.RequestFailed
        with pytest.raises(JsonRpcException, match="full path"):
            await session.command("trust", "relative")
        with pytest.raises(JsonRpcException, match="texts"):
            await session.command("trust", str(tmp_path), 3)


async def test_a_projects_settings_apply_as_soon_as_they_are_written(tmp_path):
    async with editor(tmp_path, capabilities=WATCHES_ITSELF) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        await eventually(session, uri, "regs")
        (tmp_path / "pyproject.toml").write_text(
            "[tool.kernel-lsp.editor]\nfacts_lens = false\nverdict_lens = 'maybe'\n"
        )
        project = (tmp_path / "pyproject.toml").as_uri()
        async with asyncio.timeout(20):
            while any("regs" in title for _, title in await lenses(session, uri)):
                await asyncio.sleep(0.05)
        await session.until(lambda: messages(session, project))
        (problem,) = session.client.diagnostics[project]
        assert problem.message.startswith("`editor.verdict_lens = 'maybe'`")
        assert problem.range.start.line == 2
        (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp.editor]\nfacts_lens = true\n")
        await eventually(session, uri, "regs")
        await session.until(lambda: not messages(session, project))


@pytest.mark.thorough
async def test_the_users_own_settings_apply_as_soon_as_they_are_written(tmp_path):
    file = tmp_path / ".home/config/kernel-lsp/settings.toml"
    file.parent.mkdir(parents=True)
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        await eventually(session, uri, "regs")
        file.write_text("editor.facts_lens = false\n")
        async with asyncio.timeout(20):
            while any("regs" in title for _, title in await lenses(session, uri)):
                await asyncio.sleep(0.05)


@pytest.mark.thorough
async def test_what_the_client_says_stands_above_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp.editor]\nfacts_lens = false\n")
    async with editor(tmp_path, **{"kernel-lsp": {"editor": {"facts_lens": True}}}) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        await eventually(session, uri, "regs")
        said = {"kernel-lsp": {"editor": {"facts_lens": False, "verdict_lens": None}}}
        session.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(said))
        async with asyncio.timeout(20):
            while any("regs" in title for _, title in await lenses(session, uri)):
                await asyncio.sleep(0.05)


async def test_a_client_that_is_asked_for_its_settings_answers_with_them(tmp_path):
    capabilities = recorded("vscode_1.139_languageclient11")
    async with editor(tmp_path, capabilities=capabilities) as session:
        said = {"editor": {"facts_lens": False, "variant_lens": None}}
        session.client.protocol.fm.features[types.WORKSPACE_CONFIGURATION] = lambda params: [said]
        session.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(None))
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        async with asyncio.timeout(20):
            while any("compiling" in title for _, title in await lenses(session, uri)):
                await asyncio.sleep(0.05)
        assert not any("regs" in title for _, title in await lenses(session, uri))


@pytest.mark.thorough
async def test_a_wrong_value_of_the_client_is_shown_once_and_left_out(tmp_path):
    async with editor(tmp_path, editor={"delay_ms": "soon"}, judge={"detla": 1}) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        await lenses(session, uri)
        await lenses(session, uri)
        assert [text for text in session.said if "delay_ms" in text and "soon" in text] == [session.said[0]]
        assert "`judge.detla` is not a setting. Did you mean `judge.delta`?" in session.said


async def test_a_header_that_changes_on_disk_changes_what_is_said_of_a_text(tmp_path):
    header = tmp_path / "factor.cuh"
    header.write_text("#define FACTOR 2.f\n")
    text = '#include "factor.cuh"\n' + GOOD.replace("2.f", "FACTOR")
    async with editor(tmp_path, capabilities=WATCHES_ITSELF) as session:
        uri = session.open(tmp_path / "scale.cu", text, "cuda")
        await eventually(session, uri, "regs")
        header.write_text("#define FACTOR two\n")
        await session.until(lambda: messages(session, uri))
        header.write_text("#define FACTOR 3.f\n")
        await session.until(lambda: not messages(session, uri))


@pytest.mark.thorough
async def test_vs_code_watches_files_and_tells(tmp_path):
    header = tmp_path / "factor.cuh"
    header.write_text("#define FACTOR 2.f\n")
    text = '#include "factor.cuh"\n' + GOOD.replace("2.f", "FACTOR")
    async with editor(tmp_path, capabilities=recorded("vscode_1.139_languageclient9")) as session:
        uri = session.open(tmp_path / "scale.cu", text, "cuda")
        await eventually(session, uri, "regs")
        header.write_text("#define FACTOR two\n")
        changed = types.FileEvent(header.as_uri(), types.FileChangeType.Changed)
        session.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([changed]))
        await eventually(session, uri, "when it last compiled")


async def test_folders_come_and_go(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (there / "scale.cu").write_text(GOOD)
    untrusted = [(0, "Not trusted: trust there")]
    async with editor(here) as session:
        uri = (there / "scale.cu").as_uri()
        assert await lenses(session, uri) == untrusted  # what the client vouches for are its folders and open files
        folder = types.WorkspaceFolder(there.as_uri(), "there")
        for added, removed, expected in (([folder], [], False), ([], [folder], True)):
            event = types.WorkspaceFoldersChangeEvent(added, removed)
            session.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))
            async with asyncio.timeout(20):
                while (await lenses(session, uri) == untrusted) is not expected:
                    await asyncio.sleep(0.05)


async def test_a_window_vouches_for_an_open_file_whose_folder_leaves_it(tmp_path):
    """As for any other file outside the workspace: its user has it open."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there, there / "deeper"):
        folder.mkdir()
    (there / "scale.cu").write_text(GOOD)
    (there / "deeper/scale.cu").write_text(GOOD)
    closed = (there / "scale.cu").as_uri()

    async def is_trusted(session, uri):
        return not any("Not trusted" in title for _, title in await lenses(session, uri))

    async with editor(here) as session:
        folder = types.WorkspaceFolder(there.as_uri(), "there")
        uri = ""
        for added, removed in (([folder], []), ([], [folder])):
            event = types.WorkspaceFoldersChangeEvent(added, removed)
            session.client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))
            async with asyncio.timeout(20):
                while await is_trusted(session, closed) is not bool(added):
                    await asyncio.sleep(0.05)
            uri = uri or session.open(there / "deeper/scale.cu", language="cuda")
        assert await is_trusted(session, uri)


@pytest.mark.thorough
async def test_no_hint_is_shown_unasked(tmp_path):
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        assert not await hint_lines(session, uri)
