"""The tools that a model may call within a turn: each judges a trial answer, or the kernel as it stands.

They are the judge's own: the same workers compile, check and race a trial as an answer. A race's result counts in the
search as any other does. Calls and their results are part of the turn's prompt, and so of the stored trajectory.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kernel_lsp.compiler.machine_code.sass import disassemble
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.sampling import CaseSample
from kernel_lsp.model.answers import CallPart
from kernel_lsp.model.client import Message, ToolOffer
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.refine.dialogue.feedback import facts_lines, message_of
from kernel_lsp.refine.dialogue.task import ModelTask
from kernel_lsp.refine.proposer import Facts, Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate

_TOOLS = {
    "compile": "Compile a trial answer: the compiler's messages, or registers, spills and shared memory.",
    "check": "Run a trial answer on the judge's inputs: right, or its first wrong element. It is not timed.",
    "time": "Check a trial answer and race it against the baseline: the ratio of times with its interval.",
    "profile": "Count on an emulator what each line of a trial answer executes and moves in a few blocks.",
    "facts": "Registers, spills, shared memory, occupancy and its limiter of each kernel.",
    "sass": "The machine code of each kernel, with source lines.",
}
_ANSWER = "A whole answer in the form that your last one must have. Leave it out for the kernel as it stands."
_LINES = 12  # of a profile
_INSTRUCTIONS = 160  # of machine code
_UNFORMED = 'The arguments must be a JSON object such as {"answer": "..."}.'


class Toolbox:
    """The tools of one turn.

    Args:
        bench: judges trials.
        task: reads them.
        handler: of the turn's answer, which may be one of the trials.
        calls: how many are answered; further ones are refused, and then none is offered any more.
    """

    def __init__(self, bench: Workbench, task: ModelTask, handler: AnswerHandler, calls: int) -> None:
        self._bench, self._task, self._handler, self._left = bench, task, handler, calls

    @property
    def offer(self) -> ToolOffer:
        """Return the tools as a request has them, open while calls are left."""
        answer = {"type": "string", "description": _ANSWER}
        parameters = {"type": "object", "properties": {"answer": answer}, "required": list[str]()}
        named = [{"name": name, "description": says, "parameters": parameters} for name, says in _TOOLS.items()]
        return ToolOffer([{"type": "function", "function": one} for one in named], open=self._left > 0)

    async def answered(self, text: str, calls: Sequence[CallPart]) -> list[Message]:
        """Return the messages that a conversation goes on with: the model's calls, and what came of each in order."""
        ids = [call.id or f"call_{call.number}" for call in calls]
        made = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for name, call in zip(ids, calls, strict=True)
        ]
        said = [Message(role="assistant", content=text, tool_calls=made)]
        for name, call in zip(ids, calls, strict=True):
            said.append(Message(role="tool", content=await self._use(call), tool_call_id=name))
        return said

    async def _use(self, call: CallPart) -> str:
        """Return what a call comes to, in words; a mistake in it is told to the model."""
        tools: dict[str, Callable[[Candidate], Awaitable[str]]] = {
            "compile": self._compile,
            "check": self._check,
            "time": self._time,
            "profile": self._profile,
            "facts": self._facts,
            "sass": self._sass,
        }
        if self._left <= 0:
            return "No further call is answered in this turn. Give your answer."
        self._left -= 1
        if call.name not in tools:
            return f"There is no tool `{call.name}`. There are: {', '.join(tools)}."
        try:
            given: Any = json.loads(call.arguments or "{}")
            answer = given.get("answer")
        except (ValueError, AttributeError):
            return _UNFORMED
        if not isinstance(answer, str | None):
            return _UNFORMED
        try:
            baseline = self._bench.session.target.baseline
            trial = self._task.candidate(ModelAnswer(answer)) if answer else baseline
        except RejectedAnswer as rejection:
            return str(rejection)
        self._bench.show(f"the model calls {call.name}")
        return await tools[call.name](trial)

    async def _compile(self, trial: Candidate) -> str:
        built = await self._bench.compiled(trial)
        return (
            f"It does not compile.\n{built}" if isinstance(built, str) else f"It compiles.\n{_resources(built)}".strip()
        )

    async def _check(self, trial: Candidate) -> str:
        if self._is_baseline(trial):
            return "That is the kernel as it stands, which is right."
        if not self._bench.timed:  # a full judgement, which the turn's answer need not repeat
            self._handler.note_trial(trial)
        return _told(await self._bench.checked(trial))

    async def _time(self, trial: Candidate) -> str:
        if not self._bench.timed:
            return "There is no GPU here, so nothing can be timed."
        if self._is_baseline(trial):
            return "That is the kernel as it stands, against which all others are timed."
        self._handler.note_trial(trial)
        return _told(await self._bench.try_out(trial))

    async def _profile(self, trial: Candidate) -> str:
        built = await self._bench.compiled(trial)
        if isinstance(built, str):
            return f"It does not compile.\n{built}"
        sample = await self._bench.sampled(trial, built)
        if sample is None:
            return "The emulator cannot run its largest case, or not in time."
        return "\n".join(_profile_lines(sample, trial))

    async def _facts(self, trial: Candidate) -> str:
        built = await self._bench.compiled(trial)
        return f"It does not compile.\n{built}" if isinstance(built, str) else _resources(built) or "Nothing is known."

    async def _sass(self, trial: Candidate) -> str:
        built = await self._bench.compiled(trial)
        if isinstance(built, str):
            return f"It does not compile.\n{built}"
        try:
            lines = await asyncio.to_thread(lambda: list(_machine_code(built, trial)))
        except KernelLspError as error:
            return str(error)
        cut = len(lines) - _INSTRUCTIONS
        return "\n".join([*lines[:_INSTRUCTIONS], *([f"... and {cut} lines more"] if cut > 0 else [])])

    def _is_baseline(self, trial: Candidate) -> bool:
        return trial.digest == self._bench.session.target.baseline.digest


def _told(feedback: Feedback) -> str:
    """Return an outcome in words."""
    facts = facts_lines(feedback.facts)
    return "\n".join(filter(None, (f"{feedback.verdict.value}: {message_of(feedback)}", ", ".join(facts))))


def _resources(built: Built) -> str:
    """Return what each kernel takes, a line each."""
    lines: list[str] = []
    for one in resources_of(built):
        costs = Facts(one.registers, one.spill_bytes, one.shared_bytes, one.occupancy)
        limit = f", limited by {one.limiter}" if one.limiter else ""
        lines.append(f"{one.name}: {', '.join(facts_lines(costs))}{limit}")
    return "\n".join(lines)


def _profile_lines(sample: CaseSample, trial: Candidate) -> Iterator[str]:
    """Yield the lines of a file that execute or move most in the sampled blocks."""
    path, text = str(trial.kernel.path.absolute()), trial.kernel.text.splitlines()
    instructions, sectors, requests = Counter[int](), Counter[int](), Counter[int]()
    for one in sample.run.counters:
        line = one.line if one.path == path else 0
        instructions[line] += one.instructions
        sectors[line] += one.load_sectors + one.store_sectors
        requests[line] += one.load_requests + one.store_requests
    yield "Counted in a few blocks of the largest case on an emulator; that says nothing of time."
    moved, executed = sectors.total() or 1, instructions.total() or 1
    for line in sorted(instructions, key=lambda n: -(instructions[n] / executed + sectors[n] / moved))[:_LINES]:
        shown = f"line {line}" if line else "elsewhere"
        code = text[line - 1].strip() if 0 < line <= len(text) else ""
        each = f", {sectors[line] / requests[line]:.1f} sectors a request" if requests[line] else ""
        shares = f"{instructions[line] / executed:.0%} of instructions, {sectors[line] / moved:.0%} of sectors{each}"
        yield f"{shown}: {shares} | {code}"


def _machine_code(built: Built, trial: Candidate) -> Iterator[str]:
    """Yield the listing of each kernel.

    Raises:
        KernelLspError: there is no disassembler.
    """
    path = str(trial.kernel.path.absolute())
    for image in built.images:
        for code in disassemble(image.cubin, by_triton=built.build.way == "triton"):
            yield f"{code.function}:"
            for one in code.instructions:
                line = one.line_in(path)
                text = " ".join(filter(None, (f"@{one.guard}" if one.guard else "", one.opcode, one.operands)))
                yield f"  {text}  // line {line}" if line else f"  {text}"
