"""Searches that talk with a server which answers as it is told."""

import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine.search import refine
from tests.served_model.fake_server import FakeServer, said
from tests.served_model.scale import write_scale

MODEL = {"model.name": "tiny", "model.profile": "kevin-32b"}


@asynccontextmanager
async def scale_session(folder):
    """A session of the module that scales, on the emulator and with plain inputs alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        settings, _ = load_settings(overrides={"judge.families": ["normal"], "paths.cache": folder / "cache"})
        async with open_session(make_target(write_scale(folder)), settings) as opened:
            yield opened


@asynccontextmanager
async def fake_server():
    """A server on a socket in a folder with a short name."""
    folder = Path(tempfile.mkdtemp(prefix="kl-"))
    made = FakeServer(folder / "socket", key=None)
    await made.open()
    yield made
    await made.close()
    shutil.rmtree(folder)


def answered(text: str, tokens: int = 100) -> list:
    return [said(reasoning="Let me see."), said(text, tokens=tokens), said(finish="stop", tokens=tokens)]


def in_turn(server: FakeServer, *answers) -> None:
    """Each request gets the next answer: a text, or the steps of the server."""
    given = iter(answers)
    server.reply = lambda _: a if isinstance(a := next(given), list) else answered(a)


async def run(session, server, monkeypatch, *, budget=200.0, stop=None, model=None, **changes):
    """One search with settings of `refine`: what came of it, and the turns as they were stored."""
    wanted = {"strategy": "serial", "trajectories": 1, "proposers": ["rewriter"]} | changes
    overrides = {f"refine.{name}": value for name, value in wanted.items()} | MODEL | (model or {})
    overrides |= {"judge.families": ["normal"], "model.endpoint": f"unix:{server.socket}"}
    monkeypatch.setattr(session, "settings", load_settings(overrides=overrides)[0])
    turns = {}

    def keep(said):  # each turn comes twice: when its answer is there, and with its outcome
        place = said.turn.trajectory, said.turn.number
        turns.pop(place, None)
        turns[place] = said

    found = await refine(session, budget=budget, on_exchange=keep, stop=stop)
    return found, list(turns.values())


def asked(server: FakeServer, number: int) -> list[str]:
    """The messages of a request."""
    return [message["content"] for message in server.bodies[number]["messages"]]
