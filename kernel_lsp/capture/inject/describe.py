"""Describes arguments and results as plain data: shapes, types, statistics and structure; integers in full.

Runs in the user's process with the program's own torch. It draws no random number and changes no tensor.
"""

import base64
import math
import zlib

import torch

SAMPLED = 1 << 16
"""Number of elements that statistics use, evenly spread over a tensor."""
KEPT_BYTES = 1 << 20
"""Most bytes of integers stored for one tensor; of more, only the range is stored."""
STRUCTURED = 1 << 22
"""Most elements among which structure is searched."""
QUANTILES = 32
_TENSORS = torch.Tensor, torch.nn.Parameter


def _is_tensor(value):
    return type(value) in _TENSORS


def _is_triton_type(value):
    return type(value).__module__.startswith("triton.language") and type(value).__name__ == "dtype"


def can_be_given(value):
    """Return True if this value can be passed to a function again in another process."""
    if isinstance(value, (tuple, list)):
        return type(value) in (tuple, list, torch.Size) and all(map(can_be_given, value))
    if _is_tensor(value):
        return value.layout is torch.strided and not value.is_quantized and value.device.type != "meta"
    plain = isinstance(value, (bool, int, float, str, torch.dtype)) or value is None
    return plain or _is_triton_type(value)


def signature(value):
    """Return the signature of a call: forms of tensors, types of numbers, all other values as they are."""
    if type(value) in _TENSORS:  # as `_is_tensor` has it; each call of the program waits for this
        return value.dtype, value.shape, value.stride(), value.data_ptr() % 16
    if isinstance(value, (tuple, list)):
        return tuple(map(signature, value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return type(value).__name__
    return repr(value)


@torch.no_grad()
def describe_arguments(values):
    """Return the arguments of a call by name, as plain data; `like` names an earlier one that is the same tensor."""
    seen = {}
    return {name: _described(value, name, seen) for name, value in values.items()}


def _described(value, name, seen):
    if _is_tensor(value):
        place = (value.data_ptr(), str(value.dtype), tuple(value.shape), value.stride())
        if value.numel() and place in seen:
            return dict(kind="like", name=seen[place])
        seen[place] = name
        return _tensor(value)
    if isinstance(value, (tuple, list)):
        items = [_described(item, f"{name}_{number}", seen) for number, item in enumerate(value)]
        return dict(kind="list" if isinstance(value, list) else "tuple", items=items)
    if isinstance(value, torch.dtype):
        return dict(kind="dtype", value=str(value).removeprefix("torch."))
    if _is_triton_type(value):
        return dict(kind="triton", value=value.name)
    if isinstance(value, float):
        return dict(kind="float", value=repr(value))
    if type(value) is int and abs(value) >= 1 << 63:
        return dict(kind="int", value=str(value))
    return dict(kind=type(value).__name__ if value is not None else "none", value=value)


def _tensor(value):
    address = value.data_ptr()
    made = dict(
        kind="tensor", dtype=str(value.dtype).removeprefix("torch."), shape=list(value.shape),
        stride=list(value.stride()), align=min(address & -address, 16) if address else 16, checksum=checksum(value),
    )  # fmt: skip
    if value.numel():
        made |= _floats(value.detach()) if value.is_floating_point() else _whole(value.detach())
    return made


def _floats(value):
    flat = value.reshape(-1)
    step = -(-flat.numel() // SAMPLED)
    sample = flat[::step].double().cpu()
    finite = sample[torch.isfinite(sample)].sort().values
    share = lambda mask: float(mask.double().mean())  # noqa: E731
    made = dict(
        nan=share(sample.isnan()), posinf=share(sample == math.inf), neginf=share(sample == -math.inf), structure=[]
    )
    if finite.numel():
        places = [round(i * (finite.numel() - 1) / QUANTILES) for i in range(QUANTILES + 1)]
        made["quantiles"] = finite[places].tolist()
    if 1 < value.numel() <= STRUCTURED and value.dim() and value.itemsize > 1:
        made["structure"] = _structure(value)
    return made


def _structure(x):
    if bool((x == x.flatten()[0]).all()):
        return []
    found = []
    if x.dim() > 1 and x.shape[-1] > 1 and x.shape[-2] > 1:
        found += ["lower_triangular"] if torch.equal(x.tril(), x) else []
        found += ["upper_triangular"] if torch.equal(x.triu(), x) else []
        square = x.shape[-1] == x.shape[-2]
        found += ["symmetric"] if square and x.shape[-1] > 2 and torch.equal(x, x.mT) else []
    if x.shape[-1] > 7 and bool((x[..., :-1] <= x[..., 1:]).all()):
        found += ["sorted"]
    rows = (x != 0).sum(-1)
    if x.shape[-1] > 1 and bool((rows == 1).all()) and bool((x.sum(-1) == 1).all()):
        found += ["one_hot"]
    return found


def _whole(value):
    if value.is_complex():
        return {}
    flat = value.reshape(-1)
    made = dict(least=int(flat.min()), most=int(flat.max()), ascending=False)
    if flat.numel() > 1 and value.dtype is not torch.bool:
        made["ascending"] = bool((flat[1:] >= flat[:-1]).all())
    if value.nbytes <= KEPT_BYTES:
        data = _dense(value).cpu().view(torch.uint8).numpy().tobytes()
        made["data"] = base64.b64encode(zlib.compress(data)).decode()
    return made


def _dense(value):
    """Return the elements one after another; a tensor of one element is contiguous with any stride."""
    flat = value.contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,))


@torch.no_grad()
def checksum(value):
    """Return a checksum that changes with the tensor, computed on the tensor's device."""
    if not value.numel():
        return 0
    flat = _dense(value.detach())
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    data = flat.view(torch.uint8)
    data = data.view(torch.int32) if data.numel() % 4 == 0 else data
    total = 0
    for start in range(0, data.numel(), 1 << 24):
        part = data[start : start + (1 << 24)].to(torch.int64)
        weights = torch.arange(part.numel(), device=part.device) % 65521 + 1
        total = (total * 31 + int((part * weights).sum())) & 0xFFFFFFFFFFFFFFFF
    return total


@torch.no_grad()
def mutated(described, values, versions):
    """Return the names of the tensor arguments whose elements the call changed."""
    found = []
    for name, argument in described.items():
        for path, tensor, before in _tensors(name, values[name], argument):
            if checksum(tensor) != before or (path in versions and versions[path] != tensor._version):
                found.append(path)
    return found


def _tensors(name, value, described):
    if described["kind"] == "tensor":
        yield name, value, described["checksum"]
    elif described["kind"] in ("tuple", "list"):
        for number, item in enumerate(described["items"]):
            yield from _tensors(f"{name}_{number}", value[number], item)


def returned(value):
    """Return the number of tensors that a call returned."""
    if isinstance(value, (tuple, list)):
        return sum(map(returned, value))
    return int(isinstance(value, torch.Tensor))
