"""A `ModelNew` as something to launch: built once, then given inputs and weights that others have made.

Worker processes only: it runs the user's code. It knows the arguments of the constructor and how inputs are nested,
never the problem's text.
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
    """The positional arguments of `forward`, from the leaves that are inputs."""
    given, fixed = iter(leaves), dict(call.fixed)
    spec = pytree.treespec_loads(call.tree)
    whole = [ast.literal_eval(fixed[number]) if number in fixed else next(given) for number in range(spec.num_leaves)]
    return pytree.tree_unflatten(whole, spec)


class Answer:
    """The model class of one file: `ModelNew`, or `Model` where there is none. A model is built for each case.

    Sizes of the problem that stand in the file too are those of the case there.
    """

    def __init__(self, text: str, path: Path, calls: Sequence[Call], device: str) -> None:
        """Take a file's text; `device` is `cuda`, or `cpu` where the GPU is only stood in for."""
        self._text, self._path, self._calls, self._device = text, path, calls, device
        self._classes: dict[str, type[nn.Module]] = {}
        self._built: dict[int, _Bound] = {}

    def build(self, case: int) -> tuple[str, ...]:
        """Build the model for a case, if that is not done yet; the weights that it does not have under their names.

        One of another type or shape is another weight. They are as the model's own constructor makes them, under the
        problem's seed.

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
            module = load_module(text, self._path, afresh=True)  # it may ask for extensions, built or not yet
            made = next((getattr(module, name) for name in _CLASSES if hasattr(module, name)), None)
            if not isinstance(made, type) or not issubclass(made, nn.Module):
                cure = "Define `class ModelNew(nn.Module)`, constructed and called as the problem's `Model` is."
                raise WorkloadError("the file defines no `ModelNew`", self._path, cure=cure)
            self._classes[text] = made
        return self._classes[text]

    def launch(self, case: int) -> Callable[..., tuple[Tensor, ...]]:
        """What runs it on the leaves of a case: its inputs, then its weights."""
        self.build(case)
        return self._built[case]

    def lacking(self, case: int) -> tuple[str, ...]:
        """Return weights that the model for a case cannot be given, as far as that is known so far."""
        return self._built[case].lacking

    def unbind(self) -> None:
        """Have the models keep no memory of the leaves that they were called on."""
        for bound in self._built.values():
            bound.unbind()


class _Bound:
    """One model, whose weights lie where the leaves do."""

    def __init__(self, model: nn.Module, call: Call) -> None:
        self._model, self._call = model, call
        self._tensors: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
        wanted = zip(call.weights, call.forms, strict=True)
        self._own = [self._named(name, wants) for name, wants in wanted]
        self._seen: tuple[Any, ...] = ()
        self._looked = False

    @property
    def lacking(self) -> tuple[str, ...]:
        """Weights that the model cannot be given."""
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
        """Take a tensor of the model under another name for a weight whose values it holds, as constructed."""
        taken = {id(own) for own in self._own if own is not None}
        for number, weight in enumerate(weights):
            for tensor in self._tensors.values() if self._own[number] is None else ():
                alike = tensor.dtype is weight.dtype and tensor.numel() == weight.numel() and id(tensor) not in taken
                if alike and bool(torch.equal(tensor.detach().reshape(-1), weight.reshape(-1))):
                    self._own[number] = tensor
                    taken.add(id(tensor))
                    break

    def unbind(self) -> None:
        """Have the model keep no memory of the leaves."""
        if self._seen:
            for own in self._own:
                if own is not None:
                    own.data = own.data.clone()
            self._seen = ()


def form(weight: Tensor) -> str:
    """Type and shape of a weight: `float32[64, 3]`."""
    return f"{weight.dtype}{list(weight.shape)}".removeprefix("torch.")


def build_model(kind: type[nn.Module], init: Sequence[Any], seed: int, device: str) -> nn.Module:
    """A model on the GPU, or what stands for it, with random numbers from `seed`; those of others go on as before."""
    with seeded(seed, device), on_device():
        return kind(*init).cuda()


def on_device() -> torch.device:
    """Context in which tensors are made on the GPU unless told otherwise, or on what stands for it."""
    return torch.device("cuda")


@contextlib.contextmanager
def seeded(seed: int, device: str) -> Generator[None]:
    """Within it random numbers follow from `seed`; afterwards they go on as if nothing had been drawn."""
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
    """The tensors in what a model returned, whatever its structure; numbers become tensors, the rest is left out."""
    return tuple(
        leaf if isinstance(leaf, Tensor) else torch.tensor(leaf)
        for leaf in pytree.tree_leaves(returned)
        if isinstance(leaf, (Tensor, bool, int, float))
    )
