"""Chooses a way to serve a model in the free GPU memory: type of the weights, context, number of GPUs.

It prefers, in this order: GPUs that the judge does not use; 16 bits, then 8, then 4; few GPUs. It then takes the
context that the model works well with, or the longest that fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.model.errors import DoesNotFitError
from kernel_lsp.model.profile import ContextLength, Dtype, Memory

_GIB = 2**30
_DTYPES: tuple[Dtype, ...] = ("bf16", "fp8", "4bit")
_LEAST_ARCH: dict[Dtype, int] = {"bf16": 80, "fp8": 89, "4bit": 80}
_GRAIN = 1024  # tokens; contexts are multiples of it


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU and its free bytes."""

    gpu: Gpu
    free: int


Cards = tuple[Card, *tuple[Card, ...]]
"""At least one."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The user's wishes; None leaves the choice to this module.

    Attributes:
        dtype: type of the weights.
        context: tokens of prompt and answer together.
        gpus: number of GPUs.
        ray: GPUs of a Ray cluster, including those of this machine; all are assumed to be alike.
    """

    dtype: Dtype | None = None
    context: int | None = None
    gpus: int | None = None
    ray: int | None = None


ANYTHING = Wish()


@dataclass(frozen=True, slots=True)
class ServingOption:
    """A way of serving a model.

    Attributes:
        dtype: type of the weights.
        cards: GPUs of this machine that it uses.
        context: tokens of prompt and answer together.
        cache_bytes: bytes for keys and values, on each GPU.
        used_bytes: total bytes, on each GPU.
        pipeline: machines that hold the layers in turn; 1 without Ray.
        shares: True if it uses the judge's GPU too.
    """

    dtype: Dtype
    cards: Cards
    context: int
    cache_bytes: int
    used_bytes: int
    pipeline: int = 1
    shares: bool = False

    def __str__(self) -> str:
        name = self.cards[0].gpu.name
        names = f"{len(self.cards)} x {name}" if len(self.cards) > 1 else name
        free = min(card.free for card in self.cards) / _GIB
        where = ", which the judge uses too" if self.shares else ""
        across = f", layers spread over {self.pipeline} machines" if self.pipeline > 1 else ""
        return (
            f"{self.dtype} on {names}{where}{across}: {self.used_bytes / _GIB:.1f} of {free:.1f} GiB free, "
            f"context of {self.context:,} tokens"
        )


def choose(
    memory: Memory,
    context: ContextLength,
    cards: Sequence[Card],
    *,
    judge: str | None,
    reserve: int,
    heads: int = 0,
    stored: Dtype | None = None,
    wish: Wish = ANYTHING,
) -> ServingOption:
    """Return the best way of serving that fits.

    Args:
        memory: the model's memory needs.
        context: lengths that make sense for it.
        cards: the GPUs.
        judge: UUID of the GPU that the judge times on.
        reserve: bytes to leave free there.
        heads: attention heads, which the number of GPUs must divide; 0 if unknown.
        stored: the only type that these weights can be served in, if they are quantised.
        wish: the user's wishes.

    Raises:
        CannotJudgeError: there is no GPU.
        DoesNotFitError: nothing fits; the message lists the needs of each way.
    """
    if not cards:
        fix = "Run it where there is one, or use a server elsewhere with `model.endpoint`."
        raise CannotJudgeError("No model can be served here: this machine has no GPU.", fix=fix)
    refused: list[str] = []
    for group, dtype in _ways(cards, judge, heads, stored, wish):
        shares = any(card.gpu.uuid == judge for card in group)
        choice = _fitted(memory, context, group, dtype, reserve if shares else 0, wish, shares=shares)
        if isinstance(choice, ServingOption):
            return choice
        if choice not in refused:
            refused.append(choice)
    free = ", ".join(f"{card.free / _GIB:.1f} GiB free on {card.gpu.name} ({card.gpu.arch})" for card in cards)
    tried = "; ".join(refused) or f"no way of serving it is possible on {cards[0].gpu.arch}"
    fix = "Take a smaller model or other GPUs, ask for less with `--context`, or lower `model.reserve`."
    raise DoesNotFitError(f"The model does not fit: {free}; {tried}.", fix=fix)


def _ways(
    cards: Sequence[Card], judge: str | None, heads: int, stored: Dtype | None, wish: Wish
) -> Iterator[tuple[Cards, Dtype]]:
    """Yield groups of GPUs with a type of weights, the best first."""
    own = [card for card in cards if card.gpu.uuid != judge]
    for some in (own, list(cards)) if own else (list(cards),):
        for dtype in _DTYPES:
            if dtype != (stored or wish.dtype or dtype) or dtype != (wish.dtype or dtype):
                continue
            able = sorted(
                (card for card in some if int("".join(filter(str.isdigit, card.gpu.arch))) >= _LEAST_ARCH[dtype]),
                key=lambda card: -card.free,
            )
            for count in (1, 2, 4, 8, 16) if wish.gpus is None else (wish.gpus,):
                if count > len(able) or (heads and heads % count):
                    continue
                if dtype == "4bit" and stored is None and count > 1:
                    continue  # weights that are quantised while they load cannot be split
                yield (able[0], *able[1:count]), dtype


def _fitted(
    memory: Memory, context: ContextLength, group: Cards, dtype: Dtype, kept: int, wish: Wish, *, shares: bool
) -> ServingOption | str:
    """Return the choice, or a message with its needs if it does not fit."""
    parts = wish.ray or len(group)
    weights = memory.weights_gib[dtype] * _GIB / parts
    fixed = weights + memory.overhead_gib * _GIB
    room = min(card.free for card in group) - kept - fixed
    tokens = int(room * parts / memory.cache_bytes_per_token)
    wished = min(wish.context or context.wished, context.most)
    least = min(wish.context or context.least, wished)
    if tokens < least:
        needs = (fixed + kept + least * memory.cache_bytes_per_token / parts) / _GIB
        each = f" on each of {parts} GPUs" if parts > 1 else ""
        beside = f", {kept / _GIB:.0f} GiB of it for the judge" if kept else ""
        return f"{dtype} with a context of {least:,} tokens needs {needs:.1f} GiB{each}{beside}"
    length = min(wished, tokens)
    length = length - length % _GRAIN if length > _GRAIN and length < wished else length
    cache = int(min(tokens, length * context.sequences) * memory.cache_bytes_per_token / parts)
    pipeline = max(1, parts // len(group))
    return ServingOption(dtype, group, length, cache, int(fixed) + cache, pipeline, shares)
