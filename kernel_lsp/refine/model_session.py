"""Ask one model for answers about one kernel, and report the progress of the conversation."""

import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, contextmanager

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.model.answers import CallPart, calls_of
from kernel_lsp.model.client import Limits, Message, ModelClient, Sampling, ToolOffer
from kernel_lsp.model.endpoint import find_endpoint
from kernel_lsp.model.errors import CutOffError, EndlessReasoningError
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.refine.dialogue.answer import ModelAnswer, read_answer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages, tell
from kernel_lsp.refine.dialogue.feedback import facts_lines
from kernel_lsp.refine.dialogue.opinion import Opinion, read_opinion
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, ModelTask, format_for, make_task
from kernel_lsp.refine.outcome import Drawn, Tried
from kernel_lsp.refine.progress import Talking
from kernel_lsp.refine.proposer import Facts, Feedback
from kernel_lsp.refine.toolbox import Toolbox
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.language import source_part

_TRIED = 8  # other proposers' candidates that a model is told about


class ModelSession:
    """A client, a task and the server's profile. Use it as a context manager; many trajectories may ask at once.

    Args:
        session: of the kernel.
        settings: say which server is asked, and hold a user's own templates.
        talking: kept up to date while answers come in.
        show: called when there is something new in it.
        wishes: sentences of the user's for every further prompt; they may grow meanwhile.

    Raises on making:
        ModelError: no model is served, it may not be asked, or it cannot work on this kernel.
        ConfigurationError: there is no such profile.
    """

    def __init__(
        self,
        session: Session,
        settings: Settings,
        talking: Talking,
        show: Callable[[], None],
        wishes: Sequence[str] = (),
    ) -> None:
        self._endpoint = find_endpoint(settings)
        self.profile: Profile = find_profile(self._endpoint.profile)
        self.prompts = Prompts(
            format_for(session.target.source, self.profile, settings.refine.write), settings.model.templates
        )
        self.task: ModelTask = make_task(session.target, self.profile, self.prompts)
        self._session, self._talking, self._show = session, talking, show
        self._wishes = wishes
        self._client = ModelClient(self._endpoint, Limits())
        self._writing, self._since, self._seconds = 0, 0.0, 0.0

    async def __aenter__(self) -> "ModelSession":
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__(None, None, None)

    def opening(self, best: Candidate, ratio: float) -> list[PastTurn]:
        """Return the best file so far as an earlier answer, if the format can express that, for the model to go on.

        Args:
            best: that file.
            ratio: its time over that of the user's.
        """
        return opening(self.prompts, self.task, best, ratio)

    async def check(self) -> None:
        """Check that the server is reachable and serves the model.

        Raises:
            ModelError: it is not, or does not.
        """
        await self._client.count_tokens("kernel")

    async def ask(
        self,
        attempts: Sequence[PastTurn],
        briefing: Briefing,
        *,
        seed: int,
        advice: str = "",
        toolbox: Toolbox | None = None,
    ) -> tuple[str, ModelAnswer]:
        """Return the prompt, as JSON, and the model's answer; an answer that was cut off is not complete.

        With a toolbox the model may call its tools before it answers; the calls and their results are in the prompt.

        Raises:
            ModelError: the server failed.
        """
        wishes = self.prompts.render("wishes", wishes=list(self._wishes)).strip() if self._wishes else ""
        added = "\n\n".join(filter(None, (advice, wishes)))
        said = await messages(self.task, self.profile.talk, briefing, attempts, self._client.count_tokens, added)
        answer, calls = await self._answer(said, seed, toolbox.offer if toolbox else None)
        while toolbox is not None and calls:
            said += await toolbox.answered(answer.text, calls)
            answer, calls = await self._answer(said, seed, toolbox.offer)
        return json.dumps(said, ensure_ascii=False), answer

    def drawn(self, seed: int) -> Drawn:
        """Return the model that answers are drawn from, and how."""
        return drawn_by(self.profile, self._endpoint.model, seed)

    async def opinion(self, briefing: Briefing, seed: int) -> str:
        """Return a second opinion to add to the next prompt; empty if the model did not keep to the format.

        Raises:
            ModelError: the server failed.
        """
        found: Opinion | None = read_opinion(await self._consult("second_opinion", briefing, seed))
        if found is None:
            return ""
        self._talking.plan = found.plan
        self._show()
        return self.prompts.render("advice", **found.parts).strip()

    async def plan(
        self,
        briefing: Briefing,
        seed: int,
        *,
        done: Sequence[tuple[int, int, str, str]],
        planned: Sequence[tuple[float, int, str]],
        count: int,
    ) -> str:
        """Return the model's plan in its own words; `strategies.steps` reads them.

        Args:
            briefing: what is known of the kernel.
            seed: of the answer.
            done: steps so far: number, number of the step each builds on, text, outcome.
            planned: steps that are not carried out: chance, number of the step each builds on, text.
            count: most steps to plan.

        Raises:
            ModelError: the server failed.
        """
        return await self._consult("plan", briefing, seed, done=done, planned=planned, count=count)

    async def _consult(self, template: str, briefing: Briefing, seed: int, **values: object) -> str:
        """Return the answer to a question about the kernel as it stands, outside of any conversation."""
        target = self._session.target
        notes = (*briefing.facts, *briefing.standing)
        fence, text = source_part(target.language).fence, target.source.text
        said = self.prompts.render(template, gpu=briefing.gpu, fence=fence, kernel_text=text, notes=notes, **values)
        answer, _ = await self._answer([Message(role="user", content=said)], seed)
        return answer.text

    def briefing(self, tried: Sequence[Tried]) -> Briefing:
        """Return the facts on the kernel as it stands, and on candidates that others tried."""
        return brief(self._session, tried)

    async def _answer(
        self, said: Sequence[Message], seed: int, offer: ToolOffer | None = None
    ) -> tuple[ModelAnswer, list[CallPart]]:
        """Return an answer and the calls of tools in it; none if none may be made."""
        drawing = self.profile.drawing
        sampling = Sampling(drawing.temperature, drawing.top_p, drawing.top_k, await self._room(said), seed)
        reasoning: list[str] = []
        text: list[str] = []
        calls: list[CallPart] = []
        complete, counted = True, 0
        with self._clock():
            try:
                async with aclosing(self._client.stream(said, sampling, offer)) as pieces:
                    async for piece in pieces:
                        reasoning.append(piece.reasoning)
                        text.append(piece.text)
                        calls += piece.calls
                        now = piece.usage.completion if piece.usage else counted + 1
                        self._count(max(0, now - counted))
                        counted = max(counted, now)
            except (CutOffError, EndlessReasoningError):
                complete = False
        answer = read_answer("".join(text), "".join(reasoning), complete=complete)
        return answer, calls_of(calls) if complete and offer is not None and offer.open else []

    async def _room(self, said: Sequence[Message]) -> int:
        """Return the tokens that an answer may have: the profile's limit, or the context's room if less."""
        most = self.profile.drawing.max_tokens
        if (context := self._endpoint.context) is None:
            return most
        return max(1, min(most, context - await self._client.count_tokens(said)))

    @contextmanager
    def _clock(self) -> Generator[None]:
        """Count the time in which at least one answer is being written."""
        self._since = self._since if self._writing else time.monotonic()
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            if not self._writing:
                self._seconds += time.monotonic() - self._since

    def _count(self, tokens: int) -> None:
        self._talking.tokens += tokens
        seconds = self._seconds + time.monotonic() - self._since
        self._talking.rate = self._talking.tokens / max(seconds, 1e-3)
        self._show()


def drawn_by(profile: Profile, model: str, seed: int) -> Drawn:
    """Return how a profile has answers drawn from a model of this name."""
    drawing = profile.drawing
    return Drawn(model, profile.id, drawing.temperature, drawing.top_p, drawing.top_k, seed)


def opening(prompts: Prompts, task: ModelTask, best: Candidate, ratio: float = 1.0) -> list[PastTurn]:
    """Return the same as `ModelSession.opening`."""
    answer = task.as_answer(best)
    return [] if answer is None else [PastTurn(answer, tell(prompts, Feedback(Stage.TIMED, Outcome.SAME, ratio)))]


def brief(session: Session, tried: Sequence[Tried]) -> Briefing:
    """Return the facts on the kernel as it stands, and on candidates that others tried."""
    measured = session.measured
    gpu = gpu_name(session.gpu)
    device = ""
    standing: list[str] = []
    if session.gpu is not None and measured is not None:
        roof = measured.harness.bandwidth
        device = f"{gpu} ({session.device.arch})"
        if roof is not None:
            device += f", measured bandwidth {roof.copy / 1e9:,.0f} GB/s to copy, {roof.read / 1e9:,.0f} GB/s to read"
        for case in measured.cases:
            name = measured.harness.cases[case.draw.case]
            share = case.roofline_share(roof, case.baseline_us)
            shown = f", {share:.0%} of the measured bandwidth on compulsory traffic" if share else ""
            standing.append(f"{name}: {case.baseline_us:.1f} us{shown}")
    built = session.baseline_built
    facts: list[str] = []
    for one in resources_of(built) if built is not None else ():
        costs = Facts(one.registers, one.spill_bytes, one.shared_bytes, one.occupancy)
        limit = f", limited by {one.limiter}" if one.limiter else ""
        facts.append(f"{one.name}: {', '.join(facts_lines(costs))}{limit}")
    others = [t for t in tried if not t.candidate.origin.startswith("model:")]
    lines = [f"{t.candidate.label}: {_came_to(t)}" for t in sorted(others, key=_rank)[:_TRIED]]
    return Briefing(gpu, device, tuple(facts), tuple(standing), tuple(lines))


def gpu_name(gpu: Gpu | None) -> str:
    """Return the GPU's name as prompts give it."""
    return gpu.name if gpu else "GPU"


def _came_to(tried: Tried) -> str:
    ratio = tried.feedback.ratio
    return f"{1 / ratio:.2f}x" if ratio else tried.feedback.verdict.value.lower().replace("_", " ")


def _rank(tried: Tried) -> float:
    return tried.feedback.ratio or float("inf")
