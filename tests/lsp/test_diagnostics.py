"""Diagnostics in a real server process: compile messages while typing, pushed or pulled, never of an older text."""

import asyncio

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.lsp.job_session import editor, recorded

GOOD = "__global__ void scale(float* x) { x[threadIdx.x] *= 2.f; }\n"
BAD = GOOD.replace("2.f", "two")
TRITON = """import triton
import triton.language as tl

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, two * tl.load(x + at), mask=at < n)
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    """One warm server for the tests that ask nothing special of it; each has a file of its own."""
    async with editor(tmp_path_factory.mktemp("diagnostics")) as session:
        yield session


@pytest.fixture
def file(request, tmp_path):
    folder = request.getfixturevalue("session").folder if "session" in request.fixturenames else tmp_path
    path = folder / f"{request.node.originalname}.cu"
    path.write_text(GOOD)
    return path


def published(session):
    """Every publication, in order, as (version, messages)."""
    found = []
    take = session.client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]

    def record(params):
        found.append((params.version, [d.message for d in params.diagnostics]))
        take(params)

    session.client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = record
    return found


def messages(session, uri):
    return [d.message for d in session.client.diagnostics.get(uri, [])]


async def test_an_error_is_shown_at_its_place_and_goes_when_it_is_fixed(file, session):
    uri = session.open(file, BAD, "cuda")
    await session.until(lambda: messages(session, uri))
    found = session.client.diagnostics[uri][0]
    assert found.message == 'identifier "two" is undefined'
    assert found.severity == types.DiagnosticSeverity.Error
    assert found.source == "kernel-lsp"
    start = BAD.index("two")
    assert found.range == types.Range(types.Position(0, start), types.Position(0, start + 3))
    session.edit(uri, GOOD)
    await session.until(lambda: not messages(session, uri))


async def test_an_undefined_name_of_a_triton_kernel_that_nothing_launches_is_underlined(session):
    uri = session.open(session.folder / "alone.py", TRITON)
    await session.until(lambda: messages(session, uri))
    [found] = session.client.diagnostics[uri]
    assert found.message == "two is not defined"
    column = TRITON.splitlines()[6].index("two")
    assert found.range == types.Range(types.Position(6, column), types.Position(6, column + 3))


async def test_links_that_lead_in_a_circle_are_no_file_and_their_text_is_compiled(session):
    there, back = session.folder / "there.cu", session.folder / "back.cu"
    there.symlink_to(back.name)
    back.symlink_to(there.name)
    uri = session.open(there, BAD, "cuda")
    await session.until(lambda: messages(session, uri) == ['identifier "two" is undefined'])
    with pytest.raises(JsonRpcException, match="not in a file yet"):
        await session.command("check", uri)
    assert not session.said


async def test_a_warning_is_a_warning(file, session):
    uri = session.open(file, GOOD.replace("{ x[threadIdx.x]", "{ int i; x[i]"), "cuda")
    await session.until(lambda: messages(session, uri))
    found = session.client.diagnostics[uri][0]
    assert (found.severity, found.code) == (types.DiagnosticSeverity.Warning, "549-D")


async def test_only_the_newest_text_is_answered_for(file, session):
    """Ten edits in quick succession: what is published names the last one's error, under its version."""
    seen = published(session)
    uri = session.open(file, GOOD, "cuda")
    for i in range(10):
        session.edit(uri, GOOD.replace("2.f", f"name{i}"))
        await asyncio.sleep(0.02)
    await session.until(lambda: messages(session, uri))
    assert messages(session, uri) == ['identifier "name9" is undefined']
    assert {version for version, found in seen if found} == {11}


@pytest.mark.thorough
async def test_what_is_published_was_never_found_in_another_text(file, tmp_path):
    """Edits that arrive while the compiler runs: each publication fits the version that it names."""
    async with editor(tmp_path, editor={"delay_ms": 0}) as session:
        seen = published(session)
        uri = session.open(file, GOOD.replace("2.f", "name1"), "cuda")
        await session.until(lambda: messages(session, uri))
        for i in range(2, 14):
            session.edit(uri, GOOD.replace("2.f", f"name{i}"))
            await asyncio.sleep(0.07)
        await session.until(lambda: messages(session, uri) == ['identifier "name13" is undefined'])
        assert [found for _, found in seen if found] == [[f'identifier "name{v}" is undefined'] for v, f in seen if f]


async def test_python_that_cannot_be_parsed_is_said_at_once(tmp_path):
    async with editor(tmp_path, trusted=False) as session:
        uri = session.open(tmp_path / "k.py", "import triton\n\ndef f(:\n    pass\n")
        await session.until(lambda: messages(session, uri))
        found = session.client.diagnostics[uri][0]
        assert (found.code, found.range.start.line) == ("syntax", 2)
        session.edit(uri, "import triton\n")
        await session.until(lambda: not messages(session, uri))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("encoding", "width"), [("utf-16", 3), ("utf-8", 6), ("utf-32", 2)])
async def test_columns_are_the_clients(file, tmp_path, encoding, width):
    text = BAD.replace("{", "{ /* é🙂 */")
    async with editor(tmp_path, capabilities={"general": {"positionEncodings": [encoding]}}) as session:
        uri = session.open(file, text, "cuda")
        await session.until(lambda: messages(session, uri))
        at = session.client.diagnostics[uri][0].range.start
        assert at.character == BAD.index("two") + len(" /*   */") - 1 + width


async def test_closing_a_text_takes_its_diagnostics_away(file, session):
    uri = session.open(file, BAD, "cuda")
    await session.until(lambda: messages(session, uri))
    closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
    session.client.text_document_did_close(closed)
    await session.until(lambda: not messages(session, uri))


def pull(session, uri, previous=None):
    params = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri), previous_result_id=previous)
    return asyncio.ensure_future(session.client.text_document_diagnostic_async(params))


async def test_vs_code_pulls_and_is_told_when_nothing_is_new(file, tmp_path):
    async with editor(tmp_path, capabilities=recorded("vscode_1.139_languageclient11")) as session:
        uri = session.open(file, BAD, "cuda")
        report = await pull(session, uri)
        assert [d.message for d in report.items] == ['identifier "two" is undefined']
        again = await pull(session, uri, report.result_id)
        assert (again.kind, again.result_id) == ("unchanged", report.result_id)
        assert uri not in session.client.diagnostics  # nothing is said twice


@pytest.mark.thorough
async def test_a_pull_for_a_text_that_changes_meanwhile_is_given_up(file, tmp_path):
    async with editor(tmp_path, capabilities=recorded("vscode_1.139_languageclient11")) as session:
        await session.request("jobs", {})  # the server reads by now, one message at a time
        uri = session.open(file, GOOD, "cuda")
        for attempt in range(20):
            session.edit(uri, f"{GOOD}// {attempt}\n")
            first = pull(session, uri)
            await asyncio.sleep(0.05)
            session.edit(uri, f"{BAD}// {attempt}\n")
            try:
                await first  # on a busy machine it may have ended by then, or have begun with the new text
            except JsonRpcException as error:
                refused = error
                break
        else:
            pytest.fail("no pull was given up")
        assert refused.code == types.LSPErrorCodes.ServerCancelled
        assert refused.data["retriggerRequest"] is False
        assert [d.message for d in (await pull(session, uri)).items] == ['identifier "two" is undefined']


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["neovim_0.7.2", "neovim_0.11.4"])
async def test_clients_that_cannot_be_told_to_pull_again_are_pushed_to(name, file, tmp_path):
    async with editor(tmp_path, capabilities=recorded(name)) as session:
        uri = session.open(file, BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        with pytest.raises(JsonRpcException, match="no method"):
            await pull(session, uri)
