"""Copies the arguments of a call, and says how far two results of it are apart, by the rule of the judge.

Runs in the user's process with the program's own torch. It draws no random number and changes no tensor.
"""

import json
import math
import os
import sys

import torch

_CHUNK = 1 << 22
_RULE = json.loads(os.environ.get("KERNEL_LSP_SHADOW_RULE", "{}"))


def tensors_in(value, name):
    """Yield name and tensor for the tensors within a value, through tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from tensors_in(item, f"{name}[{number}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, str(key) if name == "" else f"{name}[{key!r}]")


class ArgumentCopies:
    """Copies of arguments: tensors that share memory share it in the copies too, at the same strides.

    Each storage is copied as a whole.
    """

    def __init__(self, args, kwargs):
        self._storages = {}
        self._memo = {}
        with torch.no_grad():
            self.args = self._copied(tuple(args))
            self.kwargs = {name: self._copied(value) for name, value in kwargs.items()}
        self._memo.clear()

    def restore(self):
        """Write the copied contents back to where they came from."""
        with torch.no_grad():
            for live, copy in self._storages.values():
                live.copy_(copy)

    def _copied(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self._memo:
                self._memo[id(value)] = self._tensor(value)
            return self._memo[id(value)]
        if isinstance(value, (tuple, list)):
            items = [self._copied(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def _tensor(self, value):
        storage = value.untyped_storage()
        key = (str(storage.device), storage.data_ptr(), storage.nbytes())
        if key not in self._storages:
            self._storages[key] = (storage, storage.clone())
        made = torch.empty(0, dtype=value.dtype, device=value.device)
        made.set_(self._storages[key][1], value.storage_offset(), value.shape, value.stride())
        return made.requires_grad_() if value.requires_grad else made


class Randomness:
    """The states of the random number generators that a call may draw from, to be set again before a second one."""

    def __init__(self):
        self._torch = torch.get_rng_state()
        on_gpu = torch.cuda.is_initialized() and "KERNEL_LSP_EMULATE" not in os.environ
        self._cuda = torch.cuda.get_rng_state_all() if on_gpu else None
        numpy, plain = sys.modules.get("numpy"), sys.modules.get("random")
        self._numpy = numpy and numpy.random.get_state()
        self._plain = plain and plain.getstate()

    def restore(self):
        """Set the states again."""
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._numpy:
            sys.modules["numpy"].random.set_state(self._numpy)
        if self._plain:
            sys.modules["random"].setstate(self._plain)


def allowed_units(dtype):
    """Return the error that a baseline of this type may have, in units of rounding; 0 for what must be equal.

    It is `table_bounds` of the judge, whose table the environment brings.
    """
    if not dtype.is_floating_point:
        return 0.0
    share = _RULE["tolerances"].get(str(dtype).removeprefix("torch."), _RULE["other"])
    return max(share / torch.finfo(dtype).eps, _RULE["floor"])


@torch.no_grad()
def same(a, b):
    """Return True if two tensors of one shape and type have the same elements."""
    if a.is_floating_point() and a.itemsize == 1:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    return bool(((a == b) | ((a != a) & (b != b))).all())


@torch.no_grad()
def difference(actual, expected):
    """Return how an output differs from the expected one, as plain data.

    `units` is the largest error in the judge's units, eps x (|expected| + RMS of expected), None if it is no number;
    `wrong` counts the elements beyond `allowed`; `index` is the first of these, else the worst one. Where type or shape
    differ, `why` says so.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        found, wanted = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (actual, expected))
        return dict(why=f"is {found}, not {wanted}", wrong=1, units=None, allowed=0.0)
    allowed = allowed_units(actual.dtype)
    scale = _scale(expected)
    largest, worst, wrong, first = -1.0, 0, 0, None
    a, e = actual.reshape(-1), expected.reshape(-1)
    for start in range(0, a.numel(), _CHUNK):
        units = _units(a[start : start + _CHUNK], e[start : start + _CHUNK], scale)
        most = float(units.max())
        if most > largest:
            largest, worst = most, start + int(units.argmax())
        if most > allowed:
            beyond = units > allowed
            wrong += int(beyond.sum())
            if first is None:
                first = start + int(beyond.to(torch.uint8).argmax())
    if largest < 0:
        return dict(why="", wrong=0, units=0.0, allowed=allowed)
    place = worst if first is None else first
    return dict(
        why="", wrong=wrong, units=largest if math.isfinite(largest) else None, allowed=allowed,
        index=_index(place, actual.shape), actual=_shown(a[place]), expected=_shown(e[place]),
        elements=a.numel(),
    )  # fmt: skip


def _scale(expected):
    """Return the RMS of the finite elements."""
    if not expected.dtype.is_floating_point:
        return 0.0
    total, count = 0.0, 0
    flat = expected.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        wide = flat[start : start + _CHUNK].double()
        wide = wide[wide.isfinite()]
        most = float(wide.abs().max()) if wide.numel() else 0.0
        if most:
            total = math.hypot(total, most * float((wide / torch.full_like(wide, most)).square().sum().sqrt()))
        count += wide.numel()
    return total / math.sqrt(count) if count else 0.0


def _units(actual, expected, scale):
    if not actual.dtype.is_floating_point:
        same = torch.zeros(actual.shape, dtype=torch.float64, device=actual.device)
        return torch.where(actual != expected, torch.full_like(same, math.inf), same)
    eps = torch.finfo(actual.dtype).eps
    a, e = actual.double(), expected.double()
    unit = (e.abs() * eps + scale * eps).clamp_min_(1e-300)
    error = (a - e).abs() / unit
    infinity = torch.full_like(error, math.inf)
    special = ~e.isfinite()
    agree = (a.isnan() & e.isnan()) | (a == e)
    error = torch.where(special, torch.where(agree, torch.zeros_like(error), infinity), error)
    return torch.where(~special & ~error.isfinite(), infinity, error)


def _index(flat, shape):
    index = []
    for extent in reversed(shape):
        flat, rest = divmod(flat, extent)
        index.append(rest)
    return index[::-1]


def _shown(element):
    value = element.item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)
