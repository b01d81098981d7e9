"""Prices come from versions that are timed in turn; those that break are left out, and nothing else is lost."""

import base64
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kernel_lsp.check import priced
from kernel_lsp.check.priced import price
from kernel_lsp.check.recorded import RecordedCase
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.judge.session import Session

pytestmark = pytest.mark.asyncio
PTX = """.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
\t.reg .b32 %r<9>;
\t.reg .b64 %rd<3>;
\t.loc\t1 7 3
\tld.global.b32 %r1, [%rd1];
\t.loc\t1 8 3
\tst.global.b32 [%rd1], %r1;
\t.loc\t1 9 3
\tbar.sync 0;
\tret;
}
\t.file\t1 "/a/k.cu"
"""
US = {"as it is": 10.0, "loads": 4.0, "stores": 9.9, "barrier": 10.1}


class Program:
    """Times versions as `replay.py` does, from what they lack; one without a word in `broken` ends it at its start."""

    def __init__(self, file: Path, broken: set[str]) -> None:
        self._texts = [base64.b64decode(one).decode() for one in json.loads(file.read_text())["images"]]
        self._broken = broken

    async def end(self, *, deadline: float) -> tuple[int | None, str]:
        said = ""
        for number, text in enumerate(self._texts):
            said += f"begun {number}\n"
            if self._lacks(text) in self._broken:
                return 1, said + "cuStreamSynchronize failed: CUDA error 700\n"
        times = [[US[self._lacks(text)] * (1 + 0.1 * turn) for turn in range(3)] for text in self._texts]
        return 0, f"{said}times {json.dumps(times)}\n"

    def _lacks(self, text: str) -> str:
        lacks = {"loads": "\tld.global.b32", "stores": "\tst.global.b32", "barrier": "bar.sync"}
        return next((what for what, word in lacks.items() if word not in text), "as it is")


async def prices(folder: Path, monkeypatch: pytest.MonkeyPatch, *broken: str) -> tuple[dict[str, float], str]:
    image = SimpleNamespace(cubin=b"as built", ptx=PTX)
    launch = {"image": 0, "entry": "k", "memories": [], "arguments": []}
    file = folder / "launches.json"
    images = [base64.b64encode(b"as built").decode()]
    file.write_text(json.dumps({"images": images, "data": [], "launches": [launch, launch]}))

    async def program(command: Sequence[str]) -> Program:
        return Program(Path(command[-2]), set(broken))

    @asynccontextmanager
    async def timer() -> AsyncGenerator[None]:
        yield

    session = SimpleNamespace(
        baseline_built=SimpleNamespace(images=(cast("Binary", image),), arch="sm_90"),
        pool=SimpleNamespace(program=program),
        target=SimpleNamespace(source=SimpleNamespace(path=Path("/a/k.cu"))),
        timer=timer,
    )
    monkeypatch.setattr(priced, "assemble", lambda ptx, arch: ptx.encode())
    found, why = await price(cast("Session", session), RecordedCase(file, "n=1"))
    assert [one.us for one in found] in ([], [pytest.approx(11)])
    return {line.what: round(line.share, 6) for one in found for line in one.lines}, why


async def test_a_price_is_the_share_of_time_that_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await prices(tmp_path, monkeypatch) == ({"loads": 0.6, "stores": 0.01, "barrier": -0.01}, "")


async def test_versions_that_break_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await prices(tmp_path, monkeypatch, "loads", "barrier") == ({"stores": 0.01}, "")


async def test_it_is_said_if_the_launch_itself_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, why = await prices(tmp_path, monkeypatch, "as it is")
    assert (found, why) == ({}, "the recorded launch did not run by itself")
