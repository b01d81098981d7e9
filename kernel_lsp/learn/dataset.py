"""Write a dataset of traces: a file for training, one for the kernels held out, and a card that says what they are.

The same store, settings and options give the same bytes. Each file is written beside its place and then renamed, the
card last, so a command that is killed leaves the old dataset or a part of the new one, and the next call the whole.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.learn.trace import TurnTrace

TRAIN, HELD_OUT, CARD = "train.jsonl", "held-out.jsonl", "README.md"
_MARK = "A dataset of verified answers about GPU kernels"
_ABOUT = """
Each line is one turn of a language model: the conversation it was given (`messages`), its `reasoning` and `answer`, and
the findings of a judge that compiled, checked and timed that answer: `verdict`, `speedup` (the time of the kernel as it
stood over that of the answer, with its 95 % `interval`) and `evidence`, the verdict's id in the store. Kernels are
split by a hash of their text without names and layout, so that no kernel is on both sides.

**It holds source code.** `licence` is the one found in a kernel's file or beside it; `unknown` is no leave to pass it
on. A model that is trained on it may repeat it.
"""
_SHARES = 16**8  # of a digest's first eight digits


def is_held_out(kernel: str, share: float) -> bool:
    """Return True if a kernel is held out of training: by its digest alone, so that new ones move none of the others.

    Args:
        kernel: digest of the kernel.
        share: of all kernels, to hold out, 0 to 1.
    """
    return int(hashlib.sha256(kernel.encode()).hexdigest()[:8], 16) < share * _SHARES


def write_dataset(
    folder: Path, kept: Sequence[TurnTrace], held_out: float, drops: Mapping[str, int], rules: Mapping[str, object]
) -> None:
    """Write `train.jsonl`, `held-out.jsonl` and the card.

    Args:
        folder: made if it is missing.
        kept: the traces.
        held_out: share of kernels to hold out.
        drops: turns that were left out, by reason.
        rules: the options in force, for the card.

    Raises:
        ConfigurationError: the folder holds something else, or cannot be written.
    """
    card = folder / CARD
    try:
        if folder.exists() and any(folder.iterdir()) and not _is_ours(folder):
            fix = "Name a folder of its own for the dataset."
            raise ConfigurationError("The folder holds something else than a dataset of this program", folder, fix=fix)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # they hold the user's code
        parts = {
            TRAIN: [one for one in kept if not is_held_out(one.kernel, held_out)],
            HELD_OUT: [one for one in kept if is_held_out(one.kernel, held_out)],
        }
        texts = {name: "".join(f"{_line(one)}\n" for one in traces) for name, traces in parts.items()}
        card.unlink(missing_ok=True)
        for name, text in texts.items():
            _write(folder / name, text)
        _write(card, _card(parts, texts, drops, rules))
    except OSError as error:
        raise ConfigurationError(f"The dataset cannot be written: {error.strerror}", folder) from None


def _is_ours(folder: Path) -> bool:
    """Return True for a dataset of ours, or the beginning of one."""
    names = {path.name.removesuffix(".draft") for path in folder.iterdir()}
    card = folder / CARD
    return names <= {TRAIN, HELD_OUT, CARD} and (not card.exists() or _MARK in card.read_text(encoding="utf-8"))


def _line(trace: TurnTrace) -> str:
    """Return a trace as a line: the conversation with its last answer, and the judge's figures at the top level."""
    plain = trace.model_dump(mode="json", exclude={"outcome"})
    outcome = trace.outcome
    plain |= {"verdict": outcome.result, "speedup": outcome.speedup, "interval": outcome.interval}
    return json.dumps(plain, ensure_ascii=False, sort_keys=True)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _card(
    parts: Mapping[str, Sequence[TurnTrace]],
    texts: Mapping[str, str],
    drops: Mapping[str, int],
    rules: Mapping[str, object],
) -> str:
    every = [one for traces in parts.values() for one in traces]
    lines = [
        *("---", "configs:", "- config_name: default", "  data_files:"),
        *("  - split: train", f"    path: {TRAIN}", "  - split: test", f"    path: {HELD_OUT}", "---", ""),
        *(f"# {_MARK}", ""),
        *(_ABOUT.strip(), ""),
        *_table("part", {name: f"{len(traces)} turns, {_kernels(traces)} kernels" for name, traces in parts.items()}),
        *_table("left out", drops),
        *_table("verdict", _count(one.outcome.result for one in every)),
        *_table("licence", _count(one.licence for one in every)),
        *_table("language", _count(one.language for one in every)),
        *_table("GPU", _count(one.gpu or "emulator, untimed" for one in every)),
        *_table("model", _count(f"{one.model} ({one.profile})" for one in every)),
        *_table("judge", _count(one.judge for one in every)),
        *_table("option", {name: json.dumps(value) for name, value in rules.items()}),
        *_table("SHA-256", {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _kernels(traces: Sequence[TurnTrace]) -> int:
    return len({one.kernel for one in traces})


def _table(title: str, rows: Mapping[str, object]) -> list[str]:
    if not rows:
        return []
    return [f"| {title} | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
