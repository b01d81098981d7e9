"""A model that is a script: it answers as a server of the OpenAI kind would, by our own rewrites and settings.

Its first answer to a problem is a right one that it knows. Each further one is the last right version of the
conversation with one change: the step that it is told to take, if that applies, else one by chance. Every fifth answer,
by chance, does not compile. Asked for a plan, it lists changes with chances, by chance too: it knows nothing of what
helps. Equal prompts with equal seeds get equal answers, so that a comparison can be repeated.
"""

import hashlib
import random
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernel_lsp.device.device import Device
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer, fenced_code
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from tests.bench.predicted_order import proposals
from tests.served_model.fake_server import said

BROKEN_SHARE = 0.2
_BYTES_PER_TOKEN = 3
_STEP = re.compile(r"^Take this step in the next version, and no other: (.+?)\.?$", re.M)
_PLAN, _COUNT = "CHANCE | ON | STEP | WHY", re.compile(r"Answer with at most (\d+) lines")
_DONE = re.compile(r"^(\d+)\. on \d+: .* Result: ([\d.]+x|right)$", re.M)
_RIGHT = "Your previous answer was correct."
_OTHER, _SAME = "Take an approach that is not in this list.", "Make the last version faster by its own approach."
_NUMBERS = "tuner"  # the origin of candidates that differ in numbers alone


@dataclass
class ScriptedProposer:
    """Answers requests about one problem.

    Attributes:
        first: a right answer.
        path: of the file that answers are for.
        language: of its kernels.
        device: that changes are proposed for.
        asked: requests so far, plans among them.
    """

    first: str
    path: Path
    language: Language
    device: Device
    asked: int = 0

    def reply(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the events of a streamed answer to a request's body."""
        self.asked += 1
        told = [str(message["content"]) for message in body["messages"]]
        chance = random.Random(hashlib.sha256(f"{body.get('seed')} {told}".encode()).digest())
        text = self._plan(told[-1], chance) if _PLAN in told[-1] else self._version(body["messages"], chance)
        tokens = max(1, len(text.encode()) // _BYTES_PER_TOKEN)
        return [said(text, tokens=tokens), said(finish="stop", tokens=tokens)]

    def _version(self, messages: list[dict[str, Any]], chance: random.Random) -> str:
        code = self._last_right(messages)
        if code is None:
            changed, summary = self.first, "A first version"
        else:
            made = self._change(code, str(messages[-1]["content"]), chance)
            changed, summary = (code, "Nothing is left to change") if made is None else (made.kernel.text, made.label)
        if chance.random() < BROKEN_SHARE:
            changed, summary = changed.replace("{", "{ undeclared_name;", 1), f"{summary}, in haste"
        return f"```python\n{changed}\n```\n\n{summary}."

    def _last_right(self, messages: list[dict[str, Any]]) -> str | None:
        """Return the code of the last answer that was said to be right; None if there is none."""
        for answer, verdict in reversed(list(pairwise(messages))):
            if answer["role"] == "assistant" and _RIGHT in str(verdict["content"]):
                try:
                    return fenced_code(ModelAnswer(str(answer["content"])))
                except RejectedAnswer:
                    continue
        return None

    def _changes(self, code: str) -> list[Candidate]:
        base = Candidate(self.language, SourceFile(self.path, code), None, "baseline", "baseline")
        return list(proposals(base, self.device))

    def _change(self, code: str, wish: str, chance: random.Random) -> Candidate | None:
        """Return a version with one change: what is wished for, if there is such, else any."""
        changes = self._changes(code)
        step = _STEP.search(wish)
        wished = [one for one in changes if step is not None and one.label == step[1]]
        if _OTHER in wish:
            wished = [one for one in changes if one.origin != _NUMBERS]
        elif _SAME in wish:
            wished = [one for one in changes if one.origin == _NUMBERS]
        return chance.choice(wished or changes) if changes else None

    def _plan(self, question: str, chance: random.Random) -> str:
        """Return a plan: changes of the first version, each on some step that was right."""
        right = [int(number) for number, _ in _DONE.findall(question)]
        most = int(found[1]) if (found := _COUNT.search(question)) else 4
        if not right:
            return "0.9 | 0 | A first version | There is none yet"
        labels = [one.label for one in self._changes(self.first)]
        chosen = chance.sample(labels, min(most, len(labels)))
        return "\n".join(f"{chance.random():.2f} | {chance.choice(right)} | {one} | By chance" for one in chosen)
