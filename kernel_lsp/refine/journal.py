"""Keep the turns of a search in the store: each candidate with its outcome, also if it lost or was not judged."""

import hashlib
import re
from dataclasses import replace

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.measure.digest import policy_digest
from kernel_lsp.judge.target import Target
from kernel_lsp.refine.dialogue.task import normalised
from kernel_lsp.refine.outcome import Exchange, Tried
from kernel_lsp.refine.turn_outcome import Circumstances, turn_outcome
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.store.store import Store

_WORD = re.compile(r"[A-Za-z_]\w*")


class Journal:
    """Writes the turns of searches on one kernel to a store.

    Args:
        store: takes them.
        target: the kernel.
        settings: in force at its file.
        gpu: that candidates run on; None for the emulator.
    """

    def __init__(self, store: Store, target: Target, settings: Settings, gpu: Gpu | None) -> None:
        self._store, self._target = store, kernel_key(target.baseline)
        self._circumstances = Circumstances(
            kernel=str(target.source.path.absolute()),
            language=str(target.language),
            gpu=gpu.name if gpu else None,
            judge=policy_digest(),
            collect=settings.learn.collect,
        )

    def tried(self, session: str, tried: Tried) -> None:
        """Keep a candidate that no model wrote, and its verdict; a model's are kept with the conversation."""
        if tried.verdict is not None:
            self._store.save_verdict(tried.verdict.model_dump(mode="json"))
        if not tried.candidate.origin.startswith("model:"):
            self._store.append_turn(
                session,
                tried.candidate.digest,
                verdict=tried.verdict.id if tried.verdict else None,
                target=self._target,
                outcome=turn_outcome(tried.feedback, judged=tried.verdict is not None).model_dump(mode="json"),
                circumstances=self._circumstances.model_dump(mode="json"),
            )

    def exchanged(self, session: str, said: Exchange) -> None:
        """Keep a turn of a model in its place, the same for each state of the turn."""
        turn, drawn = said.turn, said.turn.drawn
        outcome = turn_outcome(said.outcome, judged=said.verdict is not None, told=said.told)
        circumstances = self._circumstances.model_copy(
            update={name: getattr(drawn, name) for name in drawn.__dataclass_fields__}
            | {"complete": turn.answer.complete}
        )
        self._store.append_turn(
            session,
            said.candidate.digest if said.candidate else "",
            prompt=turn.prompt,
            answer=turn.answer.whole,
            verdict=said.verdict.id if said.verdict else None,
            number=turn.number,
            target=self._target,
            outcome=outcome.model_dump(mode="json"),
            circumstances=circumstances.model_dump(mode="json"),
        )


def kernel_key(baseline: Candidate) -> str:
    """Return the digest of a kernel file without its comments, layout and names, nor that of its launch.

    Copies of one kernel have equal keys wherever they lie and however they are renamed. Kernels that differ in nothing
    but the names of the functions they call have equal keys too.
    """
    numbers: dict[str, int] = {}
    text = normalised(replace(baseline, launch=None))
    words = _WORD.sub(lambda word: f"${numbers.setdefault(word[0], len(numbers))};", text)
    return hashlib.sha256("".join(words.split()).encode()).hexdigest()
