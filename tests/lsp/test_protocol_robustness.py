"""Whatever a client sends, the server answers or ignores it as the specification says, and never dies.

`tests.bench.protocol_fuzz` sends ten times as much, and more.
"""

import pytest

from tests.lsp.fuzzing import INVALID_REQUEST, NO_METHOD, Text, fuzz, initialize
from tests.lsp.raw_client import message, raw_server

pytestmark = pytest.mark.asyncio


@pytest.mark.sampled(3)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
async def test_any_messages_leave_the_server_alive_and_the_text_the_clients(encoding, tmp_path):
    found = await fuzz(encoding, tmp_path, 1000, seed=0)
    assert found["messages"] >= 1000
    assert found["texts compared"] >= found["sequences"]
    assert found["kernels found"] >= found["sequences"]


async def test_a_message_too_large_is_refused_and_the_next_one_answered(tmp_path):
    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        answers.send(b"Content-Length: %d\r\n\r\n" % (65 << 20))
        for _ in range(65):
            answers.send(b" " * (1 << 20))
            await answers.flush()
        answers.send(message(id=2, method="no/such"))
        assert (await answers.to(2))["error"]["code"] == NO_METHOD
        assert [error["code"] for error in answers.refused] == [INVALID_REQUEST]


async def test_a_stream_that_ends_within_a_message_ends_the_server(tmp_path):
    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        answers.send(b"Content-Length: 100\r\n\r\n{")
        await answers.to(1)
        answers.process.stdin.close()
        assert await answers.process.wait() == 1
        assert await answers.process.stderr.read() == b""


async def test_a_large_text_is_taken_and_a_too_large_one_until_it_shrinks(tmp_path):
    """Almost two megabytes of kernels: the server may be slow on it, and must stay right."""
    kernels = "/*🙂*/ __global__ void k(int n) { }\n" * 20
    text = Text((tmp_path / "large.cu").as_uri(), "utf-16", kernels + "// é\n" * 300_000)
    extent = {"start": {"line": 19, "character": 23}, "end": {"line": 19, "character": 24}}

    async with raw_server(tmp_path) as answers:
        answers.send(message(id=1, method="initialize", params=initialize("utf-16", tmp_path)))
        document = {"uri": text.uri, "languageId": "cuda", "version": 1, "text": text.text}
        answers.send(message(method="textDocument/didOpen", params={"textDocument": document}))

        async def symbols(number, *changes):
            version = {"uri": text.uri, "version": number}
            params = {"textDocument": version, "contentChanges": changes}
            answers.send(message(method="textDocument/didChange", params=params))
            where = {"textDocument": {"uri": text.uri}}
            answers.send(message(id=number, method="textDocument/documentSymbol", params=where))
            return (await answers.to(number))["result"]

        place = text.position(len(text.text))
        end = {"start": place, "end": place}
        assert (await symbols(2))[19]["selectionRange"] == extent
        more = "// é\n" * 500_000
        assert await symbols(3, {"range": end, "text": more}) == []
        longer = Text(text.uri, "utf-16", text.text + more)
        added = {"start": end["start"], "end": longer.position(len(longer.text))}
        found = await symbols(4, {"range": added, "text": ""})
        assert len(found) == 20
        assert found[19]["selectionRange"] == extent
