"""A pool of the lanes of a Ray cluster: an actor for each GPU, or for each machine's emulator where there is no GPU.

Machines that come later get lanes too, and a lane that is lost is made again. The driver connects with
`kernel_lsp.pool.cluster`; no other module of this program knows Ray.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError
from kernel_lsp.pool.files import packed
from kernel_lsp.pool.protocol import AnswerT, RequestT, Work
from kernel_lsp.pool.queue import UNFIT_SECONDS, LaneLostError, LaneUnfitError, TaskQueue, left_alone
from kernel_lsp.pool.remote import LaneMessage, LaneOffer, RemoteLane, program
from kernel_lsp.runner.shield import start

_OPEN_SECONDS = 180.0  # a lane's process imports this program; beside hundreds of others that takes long
_LOOK_SECONDS = 1.0  # between looks at the machines of the cluster
_PATIENCE_SECONDS = 30.0  # without any lane, until no machine is expected any more
_FAILURES = 3  # of a lane to start, until it is given up


@dataclass(frozen=True, slots=True)
class LaneSlot:
    """Room for one lane on a machine: the machine's id and name in Ray, the lane's number there, their number."""

    node: str
    host: str
    number: int
    lanes: int

    @property
    def name(self) -> str:
        """Return a name that people can tell machines by; several of a cluster may have one host name."""
        return f"{self.host}/{self.node[:6]}/{self.number}"


@dataclass(frozen=True, slots=True)
class OpenLane:
    """A lane's actor, and its first words."""

    actor: Any
    offer: LaneOffer


class RayPool:
    """Lanes on a cluster. `open` it before anything is planned, for results depend on the kind of its GPUs.

    Args:
        ray: the module, connected.
        settings: those in force.
        most: lanes, at most; by default as many as there are GPUs.
    """

    def __init__(self, ray: Any, settings: Settings, most: int | None = None) -> None:
        self._ray, self._settings, self._most = ray, settings, most
        self._kind: LaneOffer | None = None
        self._on_gpus = False
        self._open: dict[LaneSlot, OpenLane] = {}
        self._failures: Counter[LaneSlot] = Counter()
        self._reasons: dict[LaneSlot, str] = {}
        self._refused: set[LaneSlot] = set()
        self._at_work: set[LaneSlot] = set()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPU of the first lane, whose kind all others are of; empty for the emulator."""
        return () if self._kind is None or self._kind.gpu is None else (self._kind.gpu,)

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the versions of compilers and libraries, the same in all lanes."""
        return self._kind.versions if self._kind else {}

    def open(self) -> None:
        """Open the first lane, which decides of which kind the others have to be.

        Raises:
            CannotJudgeError: no machine has a lane that can be used.
        """
        self._on_gpus = any(node["Resources"].get("GPU") for node in self._nodes())
        for slot in self._slots():
            asyncio.run(self._opened(slot))
            if self._open:
                return
        raise self._nobody()

    def rest(self) -> None:
        """End all lanes; the next run starts them again."""
        self.close()

    def close(self) -> None:
        """End all lanes."""
        for lane in self._open.values():
            self._ray.kill(lane.actor)
        self._open.clear()

    async def run(
        self,
        work: Work[RequestT, AnswerT],
        queue: TaskQueue[RequestT],
        take: Callable[[AnswerT], None],
        say: Callable[[str, str], None],
    ) -> None:
        """Do all of the queue; see `LanePool.run`."""
        serving: dict[LaneSlot, asyncio.Task[None]] = {}
        seen = time.monotonic()
        try:
            while not queue.finished:
                room = (slot for slot in await asyncio.to_thread(self._slots) if slot not in serving)
                for slot in itertools.islice(room, self._wanted(serving, len(queue))):
                    serving[slot] = asyncio.create_task(self._serve(slot, work, queue, take, say))
                seen = time.monotonic() if serving or not len(queue) else seen
                if time.monotonic() - seen > _PATIENCE_SECONDS:
                    raise self._nobody()
                look = start(asyncio.sleep(_LOOK_SECONDS))
                await asyncio.wait({*serving.values(), look}, return_when=asyncio.FIRST_COMPLETED)
                for slot in [slot for slot, task in serving.items() if task.done()]:
                    serving.pop(slot).result()
        finally:
            for task in serving.values():
                task.cancel()
            await asyncio.gather(*serving.values(), return_exceptions=True)

    def _wanted(self, serving: Collection[LaneSlot], waiting: int) -> int:
        """Return how many more lanes tasks wait for, as far as there may be more."""
        starting = sum(slot not in self._open for slot in serving)
        return max(0, waiting - starting if self._most is None else min(waiting - starting, self._most - len(serving)))

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _slots(self) -> list[LaneSlot]:
        """Return all room for lanes that is known now, but for that which was refused; first what is open."""
        resource = "GPU" if self._on_gpus else "CPU"
        found: list[LaneSlot] = []
        for node in self._nodes():
            here = int(node["Resources"].get(resource, 0))
            lanes = here if self._on_gpus else min(here, 1)
            found += [LaneSlot(node["NodeID"], node["NodeManagerHostname"], number, lanes) for number in range(lanes)]
        return sorted((slot for slot in found if slot not in self._refused), key=lambda slot: slot not in self._open)

    async def _serve(
        self,
        slot: LaneSlot,
        work: Work[RequestT, AnswerT],
        queue: TaskQueue[RequestT],
        take: Callable[[AnswerT], None],
        say: Callable[[str, str], None],
    ) -> None:
        """Let one lane take tasks until all are done or the lane is lost."""
        if slot not in self._open:
            say(slot.name, "starting")
            await self._opened(slot)
        self._at_work.add(slot)
        try:
            while slot in self._open and (task := await queue.next(slot)) is not None:
                try:
                    await queue.attempt(task, self._attend(slot, work, task, queue.ahead(slot, task), take, say))
                except LaneUnfitError as error:
                    await self._leave_alone(slot, error, queue, say)
        finally:
            self._at_work.discard(slot)
        say(slot.name, "done" if slot in self._open else self._reasons.get(slot, "lost"))

    async def _leave_alone(
        self, slot: LaneSlot, error: LaneUnfitError, queue: TaskQueue[RequestT], say: Callable[[str, str], None]
    ) -> None:
        """Let a lane rest whose GPU is not fit, or refuse it for good."""
        self._at_work.discard(slot)
        say(slot.name, left_alone(error))
        if error.lasting:
            self._forget(slot)
            self._refused.add(slot)
            self._reasons[slot] = left_alone(error)
            return
        await queue.rest(UNFIT_SECONDS)
        self._at_work.add(slot)

    async def _attend(
        self,
        slot: LaneSlot,
        work: Work[RequestT, AnswerT],
        request: RequestT,
        ahead: RequestT | None,
        take: Callable[[AnswerT], None],
        say: Callable[[str, str], None],
    ) -> None:
        """Send a request to a lane and keep its answers.

        Raises:
            LaneLostError: the lane is lost.
            LaneUnfitError: its GPU is not fit, and it has begun nothing.
            RunnerError: its workers broke.
            KernelLspError: the request cannot be answered.
        """
        files = msgspec.json.encode(packed({*work.files(request), *(work.files(ahead) if ahead else ())}))
        texts = request.model_dump_json(), ahead.model_dump_json() if ahead else None
        choosy = len(self._at_work) > 1  # the last GPU is used as it is: the judge itself sees what disturbs it
        try:
            async for ref in self._open[slot].actor.attend.remote(work.name, *texts, files, choosy):
                message = msgspec.json.decode(await ref, type=LaneMessage)
                match message.kind:
                    case "said":
                        say(slot.name, message.text)
                    case "answer":
                        take(work.answer.model_validate_json(message.text))
                    case "failed":
                        raise KernelLspError(message.text)
                    case "broke":
                        raise RunnerError(message.text)
                    case "unfit" | "ruined":
                        raise LaneUnfitError(message.text, lasting=message.kind == "ruined")
        except KernelLspError:
            raise
        except self._ray.exceptions.RayError as error:
            self._forget(slot)
            raise LaneLostError(f"the lane {slot.name} was lost: {type(error).__name__}") from error
        except BaseException:
            self._forget(slot)  # it goes on with what nobody waits for
            raise

    async def _opened(self, slot: LaneSlot) -> None:
        """Start a lane; one that cannot be used is refused, one that does not start is tried again for some times."""
        on_node = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(slot.node, soft=False)
        asked = {"num_gpus": 1, "num_cpus": 0} if self._on_gpus else {"num_cpus": 1}
        remote = self._ray.remote(RemoteLane).options(**asked, max_restarts=0, scheduling_strategy=on_node)
        actor = remote.remote(slot.name, self._settings.model_dump_json(), self._on_gpus, slot.lanes)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                offer = msgspec.json.decode(await actor.offer.remote(), type=LaneOffer)
            reason = self._violation(offer)
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            self._failures[slot] += 1
            said = f"{type(error).__name__} {error}".strip().partition("\n")[0]
            offer, reason = None, f"it does not start; is this program there, and does its Ray ask for a token? {said}"
        except BaseException:
            self._ray.kill(actor)
            raise
        if offer is not None and not reason:
            self._open[slot] = OpenLane(actor, offer)
            self._kind = self._kind or offer
            return
        self._ray.kill(actor)
        self._reasons[slot] = reason
        if offer is not None or self._failures[slot] >= _FAILURES:
            self._refused.add(slot)

    def _violation(self, offer: LaneOffer) -> str:
        """Return why a lane cannot be used; empty if it can."""
        if offer.trouble:
            return offer.trouble
        if offer.program != program():
            return f"it has another kernel-lsp: {' '.join(offer.program)}, here {' '.join(program())}"
        kind = self._kind or offer
        ours, theirs = (one.gpu.name if one.gpu else "no GPU" for one in (kind, offer))
        if ours != theirs:
            return f"it has {theirs}, the others {ours}"
        names = sorted(kind.versions.keys() | offer.versions.keys())
        other = [name for name in names if kind.versions.get(name) != offer.versions.get(name)]
        said = (f"{name} {offer.versions.get(name)}, the others {kind.versions.get(name)}" for name in other)
        return f"it has {'; '.join(said)}" if other else ""

    def _forget(self, slot: LaneSlot) -> None:
        lane = self._open.pop(slot, None)
        if lane is not None:
            self._ray.kill(lane.actor)

    def _nobody(self) -> CannotJudgeError:
        reasons = "; ".join(f"{slot.name}: {reason}" for slot, reason in self._reasons.items())
        return CannotJudgeError(
            "No lane of the pool can be used.", fix=reasons or "No machine of the cluster has a GPU or a CPU for it."
        )
