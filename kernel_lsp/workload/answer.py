"""Runs the model class of a KernelBench answer: builds `ModelNew` once, then calls it on given inputs and weights.

Worker processes only: it runs the user's code. It knows the constructor's arguments and how inputs are nested, never
the problem's text.
"""

import ast
import contextlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.call import Call
from kernel_lsp.workload.constants import with_constants
from kernel_lsp.workload.execute import blame, load_module

_CLASSES = ("ModelNew", "Model")


def nest(call: Call, leaves: Sequence[Any]) -> Sequence[Any]:
    """Return the positional arguments of `forward`, made of the leaves that are inputs."""
    given, fixed = iter(leaves), dict(call.fixed)
    spec = pytree.treespec_loads(call.tree)
    whole = [ast.literal_eval(fixed[number]) if number in fixed else next(given) for number in range(spec.num_leaves)]
    return pytree.tree_unflatten(whole, spec)


class Answer:
    """The model class of one file: `ModelNew`, else `Model`. One model is built for each case.

    Sizes of the problem that the file also contains are set to those of the case.
    """

    def __init__(self, text: str, path: Path, calls: Sequence[Call], device: str) -> None:
        """Take a file's text; `device` is `cuda`, or `cpu` on the fake GPU."""
        self._text, self._path, self._calls, self._device = text, path, calls, device
        self._classes: dict[str, type[nn.Module]] = {}
        self._built: dict[int, _Bound] = {}

    def build(self, case: int) -> tuple[str, ...]:
        """Build the model for a case, once, and return the names of the weights that it lacks.

        A weight of another type or shape counts as lacking. All weights are initialised by the model's own constructor,
        with the problem's seed.

        Raises:
            WorkloadError: the file cannot be executed or defines no model, or its constructor raises.
        """
        if case not in self._built:
            call = self._calls[case]
            kind = self._class(with_constants(self._text, call.constants, call.written))
            with blame(self._path, f"`{kind.__name__}` raised while it was built"):
                model = build_model(kind, ast.literal_eval(call.init), call.seed, self._device)
            self._built[case] = _Bound(model, call)
        return self._built[case].lacking

    def _class(self, text: str) -> type[nn.Module]:
        if text not in self._classes:
            module = load_module(text, self._path, afresh=True)  # it may ask for extensions, which may not be built yet
            made = next((getattr(module, name) for name in _CLASSES if hasattr(module, name)), None)
            if not isinstance(made, type) or not issubclass(made, nn.Module):
                fix = "Define `class ModelNew(nn.Module)`, constructed and called as the problem's `Model` is."
                raise WorkloadError("the file defines no `ModelNew`", self._path, fix=fix)
            self._classes[text] = made
        return self._classes[text]

    def launch(self, case: int) -> Callable[..., tuple[Tensor, ...]]:
        """Return a callable that runs the model on the leaves of a case: its inputs, then its weights."""
        self.build(case)
        return self._built[case]

    def lacking(self, case: int) -> tuple[str, ...]:
        """Return the names of the weights that the model for a case is known to lack."""
        return self._built[case].lacking

    def unbind(self) -> None:
        """Make the models release the memory of the leaves they were called on."""
        for bound in self._built.values():
            bound.unbind()


class _Bound:
    """One model, whose weights share the memory of the given leaves."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        self._model, self._call = model, call
        self._tensors: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
        wanted = zip(call.weights, call.forms, strict=True)
        self._own = [self._named(name, wants) for name, wants in wanted]
        self._seen: tuple[Any, ...] = ()
        self._looked = False

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the names of the weights that the model lacks."""
        return tuple(name for name, own in zip(self._call.weights, self._own, strict=True) if own is None)

    def _named(self, name: str, wanted: str) -> Tensor | None:
        own = self._tensors.get(name)
        return own if own is not None and form(own) == wanted else None

    def __call__(self, *leaves: Any) -> tuple[Tensor, ...]:
        given, weights = leaves[: self._call.inputs], leaves[self._call.inputs :]
        if not self._looked:
            self._looked = True
            self._find_by_value(weights)
        if len(self._seen) != len(weights) or any(a is not b for a, b in zip(self._seen, weights, strict=True)):
            for own, weight in zip(self._own, weights, strict=True):
                if own is not None:
                    own.data = weight.view(own.shape)
            self._seen = weights
        return outputs_of(self._model(*nest(self._call, given)))

    def _find_by_value(self, weights: Sequence[Tensor]) -> None:
        """Match weights without a namesake to tensors of the model with the same values, as constructed."""
        taken = {id(own) for own in self._own if own is not None}
        for number, weight in enumerate(weights):
            for tensor in self._tensors.values() if self._own[number] is None else ():
                alike = tensor.dtype is weight.dtype and tensor.numel() == weight.numel() and id(tensor) not in taken
                if alike and bool(torch.equal(tensor.detach().reshape(-1), weight.reshape(-1))):
                    self._own[number] = tensor
                    taken.add(id(tensor))
                    break

    def unbind(self) -> None:
        """Make the model release the memory of the leaves."""
        if self._seen:
            for own in self._own:
                if own is not None:
                    own.data = own.data.clone()
            self._seen = ()


def form(weight: Tensor) -> str:
    """Return type and shape of a weight: `float32[64, 3]`."""
    return f"{weight.dtype}{list(weight.shape)}".removeprefix("torch.")


def build_model(kind: type[nn.Module], init: Sequence[Any], seed: int, device: str) -> nn.Module:
    """Return a model on the GPU, or its substitute, built with random numbers from `seed`; other random state is
    kept.
    """
    with seeded(seed, device), on_device():
        return kind(*init).cuda()


def on_device() -> torch.device:
    """Return a context in which tensors are created on the GPU, or its substitute, by default."""
    return torch.device("cuda")


@contextlib.contextmanager
def seeded(seed: int, device: str) -> Generator[None]:
    """Seed random numbers within the context, and restore their state afterwards."""
    before = torch.get_rng_state()
    on_gpu = torch.cuda.get_rng_state() if device == "cuda" else None
    try:
        torch.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(before)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu)


def outputs_of(returned: Any) -> tuple[Tensor, ...]:
    """Return the tensors in a model's result, whatever its nesting; numbers become tensors, other values are
    dropped.
    """
    return tuple(
        leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)
        for leaf in pytree.tree_leaves(returned)
        if isinstance(leaf, (Tensor, bool, int, float))
    )
