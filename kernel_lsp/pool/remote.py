"""A lane as an actor of Ray's. This process runs none of the user's code: the lane's workers do, as everywhere."""

import asyncio
import importlib
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, Literal

import msgspec

from kernel_lsp import __version__
from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError, RunnerError, as_ours
from kernel_lsp.judge.measure.digest import policy_digest
from kernel_lsp.pool.files import PackedFile, unpacked
from kernel_lsp.pool.lane import Lane, opened_lane, shared
from kernel_lsp.pool.protocol import Work
from kernel_lsp.pool.queue import LaneUnfitError
from kernel_lsp.runner.pool import Flavour


class LaneOffer(msgspec.Struct, frozen=True):
    """The first words of a lane.

    Attributes:
        host: name of its machine.
        gpu: its GPU; None for the emulator.
        program: this program's release and the hash of its judge.
        versions: of compilers and libraries.
        trouble: why it cannot be used; empty if it can.
    """

    host: str
    gpu: Gpu | None
    program: tuple[str, str]
    versions: dict[str, str]
    trouble: str


class LaneMessage(msgspec.Struct, frozen=True):
    """A message of a lane about the task under way.

    Attributes:
        kind: `said`: what it does; `answer`: a record as JSON; `failed`: the task's error; `broke`: its workers did;
            `unfit`: its GPU is no place to measure now; `ruined`: or ever.
        text: the message.
    """

    kind: Literal["said", "answer", "failed", "broke", "unfit", "ruined"]
    text: str


def program() -> tuple[str, str]:
    """Return this program's release and the hash of its judge, which driver and lanes have to share."""
    return __version__, policy_digest()


class RemoteLane:
    """One GPU of some machine, or the emulator there.

    Args:
        name: of the lane, for people.
        settings: the driver's, as JSON; folders and the number of cores are this machine's own.
        on_gpu: whether Ray gave it a GPU.
        lanes: how many this machine has.
    """

    def __init__(self, name: str, settings: str, on_gpu: bool, lanes: int) -> None:
        self._name, self._on_gpu, self._lanes = name, on_gpu, lanes
        self._settings = Settings.model_validate_json(settings)
        self._gpu: Gpu | None = None
        self._lane: Lane | None = None
        self._stack = AsyncExitStack()
        self._messages: asyncio.Queue[LaneMessage | None] = asyncio.Queue()

    async def offer(self) -> bytes:
        """Return a `LaneOffer` as JSON."""
        trouble = ""
        try:
            here = load_settings()[0]
            runner = self._settings.runner.model_copy(update={"compile_workers": here.runner.compile_workers})
            given = self._settings.model_copy(update={"paths": here.paths, "runner": runner})
            self._settings = shared(given, self._lanes)
            self._gpu = choose_gpu(self._settings.gpu) if self._on_gpu else None
            if self._on_gpu and self._gpu is None:
                trouble = "Ray gave it a GPU, of which the driver's library knows nothing"
        except KernelLspError as error:
            trouble = str(error)
        offer = LaneOffer(socket.gethostname(), self._gpu, program(), versions(), trouble)
        return msgspec.json.encode(offer)

    async def attend(
        self, name: str, request: str, ahead: str | None, files: bytes, choosy: bool
    ) -> AsyncGenerator[bytes]:
        """Answer a request; yields each `LaneMessage` as JSON.

        Args:
            name: of the work (`Work.name`).
            request, ahead: the request and the one that probably comes next, as JSON.
            files: their `PackedFile`s, as JSON.
            choosy: True to do nothing on a GPU that is not fit to measure on.
        """
        messages = self._messages = asyncio.Queue[LaneMessage | None]()
        doing = asyncio.create_task(self._attend(name, request, ahead, files, choosy))
        while (message := await messages.get()) is not None:
            yield msgspec.json.encode(message)
        await doing

    async def close(self) -> None:
        """End the lane's workers."""
        self._lane = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def _attend(self, name: str, request: str, ahead: str | None, files: bytes, choosy: bool) -> None:
        say = self._messages.put_nowait
        try:
            lane = self._lane = self._lane or await self._opened()
            if choosy:
                await lane.require_fit()
            scratch = lane.pool.scratch(Flavour.BUILD) / "files"  # which goes with the workers, however they end
            placed = unpacked(msgspec.json.decode(files, type=list[PackedFile]), scratch)
            work = find_work(name)
            asked, following = (
                text and work.request.model_validate_json(placed.request(text)) for text in (request, ahead)
            )
            await work.attend(
                lane,
                asked,
                lambda answer: say(LaneMessage("answer", placed.answer(answer.model_dump_json()))),
                following,
            )
        except LaneUnfitError as error:
            say(LaneMessage("ruined" if error.lasting else "unfit", error.message))
        except Exception as error:  # the driver decides what becomes of the task
            broken = as_ours(error)
            lost = isinstance(broken, RunnerError)
            if lost:
                await self.close()
            say(LaneMessage("broke" if lost else "failed", str(broken)))
        finally:
            self._messages.put_nowait(None)

    async def _opened(self) -> Lane:
        def say(what: str) -> None:
            self._messages.put_nowait(LaneMessage("said", what))

        opened = opened_lane(self._gpu, self._settings, self._name, say, self._lanes)
        return await self._stack.enter_async_context(opened)


def find_work(name: str) -> Work[Any, Any]:
    """Return the work of this name (`Work.name`)."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
