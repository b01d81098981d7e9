"""Collect what models said in searches, and what the judge found, into a dataset to learn from."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.learn.dataset import is_held_out, write_dataset
from kernel_lsp.learn.prune import Dropped, Rules, prune
from kernel_lsp.learn.trace import TurnTrace, stored_turns
from kernel_lsp.store.store import Store


@dataclass(frozen=True, slots=True)
class Collected:
    """A dataset that was written.

    Attributes:
        folder: it lies in.
        turns: turns of models in the store.
        train, held_out: turns kept for each.
        kernels: kernels that they are about.
        dropped: the others, by reason.
    """

    folder: Path
    turns: int
    train: int
    held_out: int
    kernels: int
    dropped: dict[str, int]


class NothingToLearnError(ConfigurationError):
    """No turn can be learned from."""


def collect(
    store: Store, folder: Path, rules: Rules, held_out: float, drawn: Mapping[str, int] | None = None
) -> Collected:
    """Write the dataset of a store and return what is in it.

    Args:
        store: of searches, by `refine`, `bench` or in batches.
        folder: for the dataset.
        rules: say which turns are kept.
        held_out: share of kernels to hold out.
        drawn: the sessions alone that count, each with the number of its turns; None for all.

    Raises:
        NothingToLearnError: nothing is to be kept.
        ConfigurationError: the folder cannot be used.
    """
    dropped: Counter[Dropped] = Counter()
    traces: list[TurnTrace] = []
    total = 0
    for turn in stored_turns(store, drawn):
        total += 1
        if turn is None:
            dropped[Dropped.UNKNOWN] += 1
        elif not (turn.collect and may_be_collected(turn.path.parent)):
            dropped[Dropped.PRIVATE] += 1
        elif _is_overturned(store, turn.trace):
            dropped[Dropped.OVERTURNED] += 1
        else:
            traces.append(turn.trace)
    kept, reasons = prune(traces, rules)
    dropped.update(reasons.values())
    drops = {why.value: dropped[why] for why in Dropped if dropped[why]}
    if not kept:
        raise _nothing(store, total, drops)
    write_dataset(folder, kept, held_out, drops, asdict(rules) | {"held_out": held_out})
    held = sum(is_held_out(one.kernel, held_out) for one in kept)
    return Collected(folder, total, len(kept) - held, held, len({one.kernel for one in kept}), drops)


@cache
def may_be_collected(folder: Path) -> bool:
    """Return what a folder's project says of `learn.collect` now; one that is there no more is looked for upward."""
    return load_settings(folder, strict=False)[0].learn.collect


def _is_overturned(store: Store, trace: TurnTrace) -> bool:
    """Return True if the newest judgement of the same texts, perhaps by a later judge, is a failure."""
    newest = store.newest_judgement(trace.evidence) if trace.evidence and trace.outcome.right else None
    return newest is not None and Outcome(newest.verdict).is_failure


def _nothing(store: Store, total: int, drops: dict[str, int]) -> NothingToLearnError:
    if not total:
        message = "No model was asked in any search of this store."
        return NothingToLearnError(message, store.path, fix="Run `kernel-lsp refine` with a model first.")
    why = "; ".join(f"{count} {reason}" for reason, count in drops.items())
    message = f"None of {total} turns can be learned from: {why}"
    return NothingToLearnError(message, store.path, fix="`--keep right` keeps those that are right but not faster too.")
