"""Estimate the memory that training an adapter takes, and say what would fit. Pure: sizes in, bytes out.

One conversation at a time goes through the model, and only the input of each layer is kept for the way back (gradient
checkpointing), so the longest conversation decides.
"""

from dataclasses import dataclass, replace

from kernel_lsp.learn.base_model import BaseModel

GIB = 2**30
_ADAPTER_BYTES = 16
"""For each weight of an adapter: itself, its gradient and AdamW's two moments, 4 bytes each."""
_OVERHEAD = {True: 2.0 * GIB, False: 1.0 * GIB}
"""Bytes for the libraries and, on a GPU, its context and what the allocator cannot use; by whether it is a GPU."""
_SPARE = 1.1
"""Factor on the estimate, which counts no temporaries of single operations."""
_GRAIN = 512  # tokens; lengths that are proposed are multiples
_LEAST_LENGTH = 1024
_RANKS = (128, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True)
class Training:
    """A way of training.

    Attributes:
        rank: of the adapter.
        length: tokens of the longest conversation.
        gpu: False for the processor, which holds weights in 32 bits.
        answer: tokens of the longest answer, where logits are computed of answers alone; None where of all tokens.
    """

    rank: int
    length: int
    gpu: bool
    answer: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a training takes, by what for."""

    weights: float
    adapter: float
    activations: float
    logits: float
    overhead: float

    @property
    def total(self) -> float:
        """Return all bytes together, with what is kept spare."""
        return _SPARE * (self.weights + self.adapter + self.activations + self.logits) + self.overhead

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "adapter and optimizer": self.adapter,
            "layers": self.activations,
            "logits": self.logits,
        }
        return ", ".join(f"{size / GIB:.1f} for {name}" for name, size in parts.items())


def adapter_parameters(model: BaseModel, rank: int) -> int:
    """Return the weights of an adapter on all linear layers: rank times inputs and outputs of each."""
    queries, keys = model.heads * model.head, model.key_heads * model.head
    attention = 2 * (model.hidden + queries) + 2 * (model.hidden + keys)
    feed_forward = 3 * (model.hidden + model.inner)
    return rank * model.layers * (attention + feed_forward)


def need(model: BaseModel, training: Training) -> MemoryNeed:
    """Return the memory that a training takes.

    A layer on its way back holds about ten times its width and eight times its inner width for each token, and what
    the adapter reads of both in 32 bits; the loss holds the logits three times, twice of these in 32 bits.
    """
    width = 2 if training.gpu else 4
    inputs = model.layers * model.hidden * width
    layer = (10 * model.hidden + 8 * model.inner) * width + (6 * model.hidden + model.inner) * 4
    return MemoryNeed(
        weights=model.parameters * width,
        adapter=adapter_parameters(model, training.rank) * _ADAPTER_BYTES,
        activations=training.length * (inputs + layer),
        logits=min(training.answer or training.length, training.length) * model.vocabulary * (width + 8),
        overhead=_OVERHEAD[training.gpu],
    )


def what_fits(model: BaseModel, training: Training, free: float) -> Training | None:
    """Return the nearest training that fits in so many bytes: first shorter conversations, then a lower rank too.

    None if no length from 1,024 tokens on fits with any rank.
    """
    for rank in (training.rank, *(one for one in _RANKS if one < training.rank)):
        length = training.length
        while length >= min(_LEAST_LENGTH, training.length):
            if need(model, one := replace(training, rank=rank, length=length)).total <= free:
                return one
            length -= _GRAIN
    return None
