"""Makes a workload of a capture: inputs are drawn like the recorded ones, and the captured function is the reference.

Runner processes only (imports torch). The reference is the first of several rungs that agrees with the function as it
is: in `float64`, in `wider` types than 16 bits, or `itself`.
"""

import base64
import contextlib
import linecache
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import spec_from_loader
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from kernel_lsp.errors import WorkloadError
from kernel_lsp.source.lift import lifted
from kernel_lsp.source.lift_cuda import lifted_cuda
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.capture import (
    CHOOSERS,
    GRID,
    RUNGS,
    Capture,
    CapturedCase,
    Described,
    Leaf,
    Rung,
    is_unset,
    leaves_of,
    read_capture,
)
from kernel_lsp.workload.contract import Contract, Promise
from kernel_lsp.workload.execute import blame, load_module
from kernel_lsp.workload.families import made_different
from kernel_lsp.workload.leaves import tensors
from kernel_lsp.workload.structure import Structure, preserve
from kernel_lsp.workload.workload import Workload

_SIGNED_LEAST = 32  # elements that all have one sign: fewer may by chance
_SHUFFLED_LEAST = 8
_COPIES: dict[str, ModuleType] = {}


class CapturedFunction:
    """The captured function as it was, used as the reference.

    Attributes:
        capture: the record.
        running: returns the context in which the function's kernels run.
        loading: returns the module of a text of the kernel's file, which is compiled where it is not Python.
        rung: its precision, one of `RUNGS`.
    """

    def __init__(self, capture: Capture, path: Path) -> None:
        """Take a capture; `path` is its file."""
        self.capture, self._path = capture, path
        self.running: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self.loading: Callable[[str], ModuleType] = lambda text: load_module(text, Path(capture.kernel))
        self.rung: Rung = RUNGS[0]
        self._modules: dict[str, ModuleType] = {}

    def reference(self, case: Mapping[str, Any], *leaves: object) -> tuple[object, ...]:
        """Return the function's results for the leaves of a case, on the chosen rung."""
        with self.running():
            return self.on(self.rung, case, leaves)

    def on(self, rung: Rung, case: Mapping[str, Any], leaves: Sequence[object]) -> tuple[object, ...]:
        """Return its results on a rung; tensors among `leaves` are not changed, and may be wider than they were."""
        seen = self.capture.cases[case["case"]]
        given = [_as_on(rung, leaf.described, value) for leaf, value in zip(leaves_of(seen), leaves, strict=True)]
        text, wide = self.capture.reference_text, rung == "float64"
        if not wide:
            module = self._module(text)
        elif is_python(Path(self.capture.kernel)):
            module = _copy_in_float64(self._module(text), text)
        else:
            module = self._module(lifted_cuda(text))
        return call(self.capture, _called(module, self.capture, self.capture.called), given, wide=wide)

    def _module(self, text: str) -> ModuleType:
        if text not in self._modules:
            self._modules[text] = self.loading(text)
        return self._modules[text]


def captured_workload(text: str, path: Path) -> Workload:
    """Return the workload of a capture's text.

    Raises:
        WorkloadError: it is damaged.
    """
    capture = read_capture(text, path)
    function = CapturedFunction(capture, path)
    leaves = leaves_of(capture.cases[0])
    cases = tuple(_case(number, case) for number, case in enumerate(capture.cases))

    def inputs(case: int, **_: object) -> tuple[object, ...]:
        return drawn(capture.cases[case])

    return Workload(
        path,
        cases,
        inputs,
        function.reference,
        bind_captured(text, path),
        tuple(leaf.name for leaf in leaves),
        contract=assumed_contract(capture),
        captured=function,
    )


def bind_captured(text: str, path: Path) -> Callable[..., tuple[object, ...]]:
    """Return the `launch` of a captured workload, which takes a module and the leaves."""
    capture = read_capture(text, path)

    def launch(module: Any, *leaves: object) -> tuple[object, ...]:
        if (alone := capture.launched) is None:
            return call(capture, _called(module, capture, capture.function), leaves)
        return call(capture, module[capture.function][alone.grid, alone.block, alone.shared], leaves)

    return launch


def _called(module: ModuleType, capture: Capture, name: str) -> Callable[..., object]:
    """Return the captured function of a module; of a kernel a function that launches it with the grid it is given.

    The choices of an autotuner or of heuristics are among the kernel's arguments, so that these are passed by.
    """
    function: Any = _function_of(module, name)
    while capture.is_kernel and type(function).__name__ in CHOOSERS:
        function = function.fn

    def launch(**given: object) -> None:
        grid = given.pop(GRID)
        function[grid](**given)

    return launch if capture.is_kernel else function


def _function_of(module: ModuleType, name: str) -> Callable[..., object]:
    """Return the function of a module.

    Raises:
        WorkloadError: the module does not have it.
    """
    function = getattr(module, name, None)
    if function is None:
        fix = "Capture the program again, or name another workload with --workload."
        raise WorkloadError(f"the captured function `{name}` is no longer there", fix=fix)
    return function


def call(
    capture: Capture, function: Callable[..., object], leaves: Sequence[object], *, wide: bool = False
) -> tuple[object, ...]:
    """Call a version of a captured function; return the tensors that it returns, and those that it changes.

    Returned inputs that it did not change are left out.
    """
    case = capture.cases[0]
    names = [leaf.name for leaf in leaves_of(case)]
    by_name = dict(zip(names, leaves, strict=True))
    arguments = {name: _argument(name, described, by_name, wide=wide) for name, described in case.arguments.items()}
    if is_python(Path(capture.kernel)):
        returned = list(_tensors_in(function(**arguments)))
    else:  # a binding may have no names for them
        returned = list(_tensors_in(function(*arguments.values())))
    changed = [leaf for name in capture.mutated if isinstance(leaf := by_name.get(name), Tensor)]
    kept = [leaf for leaf in tensors(leaves) if not any(leaf is other for other in changed)]
    outputs = [output for output in returned if not any(_within(output, leaf) for leaf in kept)]
    outputs += [leaf for leaf in changed if not any(_same_place(leaf, output) for output in outputs)]
    return tuple(outputs)


def drawn(case: CapturedCase) -> tuple[object, ...]:
    """Return inputs like those of a case, in the order of its leaves, from torch's random numbers."""
    described = [leaf.described for leaf in leaves_of(case)]
    ordered = any(one.get("ascending") and one["most"] > one["least"] for one in described)
    return tuple(
        _drawn(leaf.described, shuffled=not ordered, mutated=leaf.name in case.mutated) for leaf in leaves_of(case)
    )


def assumed_contract(capture: Capture) -> Contract:
    """Return the assumed contract of callers: all that held for every recorded call."""
    every = [leaf for case in capture.cases for leaf in leaves_of(case)]
    seen = [leaf.described for leaf in every if leaf.described["kind"] == "tensor"]
    read = [leaf.described for leaf in every if not (leaf.name in capture.mutated and is_unset(leaf.described))]
    finite = all(not (one.get("nan") or one.get("posinf") or one.get("neginf")) for one in read)
    promises: dict[str, Promise] = {}
    for name in dict.fromkeys(leaf.name for leaf in every):
        promise = _promise([leaf.described for leaf in every if leaf.name == name])
        if promise != Promise():
            promises[name] = promise
    return Contract(
        contiguous=True,  # other strides are as they were seen, and not made any other
        aligned=min((one["align"] for one in seen), default=0),
        mutates=capture.mutated,
        finite=finite,
        promises=MappingProxyType(promises),
    )


def _case(number: int, case: CapturedCase) -> dict[str, Any]:
    shapes = {leaf.name: tuple(leaf.described["shape"]) for leaf in leaves_of(case) if _is_tensor(leaf)}
    return {"case": number, "calls": case.count, **shapes}


def _is_tensor(leaf: Leaf) -> bool:
    return leaf.described["kind"] == "tensor"


def _promise(seen: Sequence[Described]) -> Promise:
    """Return what all values of one argument share. Numbers that are sizes or switches go with shapes."""
    if any(one["kind"] != "tensor" for one in seen):
        return Promise(fixed=any(one["kind"] not in ("float", "tensor") for one in seen))
    if any("data" in one and (one.get("ascending") or one["dtype"] == "bool") for one in seen):
        return Promise(fixed=True)
    structures = [set(cast("list[str]", one.get("structure", []))) for one in seen]
    common = set[str].intersection(*structures)
    ends = [cast("list[float]", one["quantiles"]) for one in seen if _tells_signs(one)]
    least = 0.0 if len(ends) == len(seen) and all(one[0] >= 0 for one in ends) else None
    most = 0.0 if len(ends) == len(seen) and least is None and all(one[-1] <= 0 for one in ends) else None
    return Promise(
        lower_triangular="lower_triangular" in common,
        upper_triangular="upper_triangular" in common,
        symmetric="symmetric" in common,
        sorted="sorted" in common,
        least=least,
        most=most,
    )


def _tells_signs(one: Described) -> bool:
    elements = torch.Size(one["shape"]).numel()
    quantiles = one.get("quantiles")
    return bool(quantiles) and elements >= _SIGNED_LEAST and quantiles[0] != quantiles[-1]


def _argument(name: str, described: Described, leaves: Mapping[str, object], *, wide: bool) -> object:
    match described["kind"]:
        case "like":
            return leaves[described["name"]]
        case "triton":
            import triton.language as tl

            narrow = wide and described["value"] in ("fp32", "fp16", "bf16")
            return tl.float64 if narrow else tl.dtype(described["value"])
        case "tuple" | "list" as kind:
            items = cast("list[Described]", described["items"])
            made = [_argument(f"{name}_{i}", item, leaves, wide=wide) for i, item in enumerate(items)]
            return made if kind == "list" else tuple(made)
        case _:
            return leaves[name]


def _as_on(rung: Rung, described: Described, value: object) -> object:
    """Return a copy of an argument for a rung, of its recorded type or of a wider one."""
    if isinstance(value, torch.dtype) and rung == "float64" and value.is_floating_point and value.itemsize > 1:
        return torch.float64
    if not isinstance(value, Tensor):
        return value
    if not value.is_floating_point():
        return value.clone()
    own = cast("torch.dtype", getattr(torch, described["dtype"]))
    wider = {"float64": torch.float64, "wider": torch.float32 if own.itemsize < 4 else own, "itself": own}[rung]
    return value.to(wider, copy=True)


def _tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in cast("Sequence[object]", value):
            yield from _tensors_in(item)


def _within(output: Tensor, leaf: Tensor) -> bool:
    first, start = leaf.data_ptr(), output.data_ptr()
    reach = sum((n - 1) * step for n, step in zip(leaf.shape, leaf.stride(), strict=True)) + 1
    return bool(output.numel() and leaf.numel()) and first <= start < first + reach * leaf.itemsize


def _same_place(leaf: Tensor, output: Tensor) -> bool:
    return leaf.data_ptr() == output.data_ptr() and leaf.numel() == output.numel()


def _drawn(described: Described, *, shuffled: bool, mutated: bool) -> object:
    match described["kind"]:
        case "tensor":
            return _tensor(described, shuffled=shuffled, mutated=mutated)
        case "float":
            return float(described["value"])
        case "int":
            return int(described["value"])
        case "dtype":
            return getattr(torch, described["value"])
        case _:
            return described["value"]


def _tensor(described: Described, *, shuffled: bool, mutated: bool) -> Tensor:
    dtype = cast("torch.dtype", getattr(torch, described["dtype"]))
    shape, stride = described["shape"], described["stride"]
    own = [1 if step == 0 else size for size, step in zip(shape, stride, strict=True)]
    if dtype.is_floating_point:
        made = _floats(described, own, mutated=mutated)
    elif dtype.is_complex:
        made = torch.randn(own, device="cuda", dtype=torch.float32).to(dtype)
    else:
        made = _whole(described, shape, dtype, shuffled=shuffled)
        made = made[tuple(slice(size) for size in own)]
    if tuple(made.stride()) != tuple(stride) or made.dtype != dtype:
        made = torch.empty_strided(own, stride, dtype=dtype, device="cuda").copy_(made)
    return made.expand(shape)


def _floats(described: Described, shape: Sequence[int], *, mutated: bool) -> Tensor:
    """Return values of the recorded distribution, with its structure."""
    quantiles = cast("list[float]", described.get("quantiles", [0.0]))
    table = torch.tensor(quantiles, dtype=torch.float64, device="cuda")
    if quantiles[0] == quantiles[-1]:
        alike = torch.full(tuple(shape), quantiles[0], dtype=torch.float64, device="cuda")
        # Weights are ones as they begin, and what takes them for that would be right by chance.
        made = made_different(alike) if quantiles[0] and not mutated and alike.numel() > 1 else alike
    else:
        where = torch.rand(tuple(shape), dtype=torch.float64, device="cuda") * (len(quantiles) - 1)
        low = where.floor().long().clamp_(max=len(quantiles) - 2)
        made = torch.lerp(table[low], table[low + 1], where - low)
    chance = torch.rand(tuple(shape), dtype=torch.float64, device="cuda")
    unset = mutated and is_unset(described)
    for name, value in () if unset else (("nan", float("nan")), ("posinf", float("inf")), ("neginf", float("-inf"))):
        if share := described.get(name):
            made = torch.where(chance < share, torch.full_like(made, value), made)
            chance = torch.rand(tuple(shape), dtype=torch.float64, device="cuda")
    names = set(cast("list[str]", described.get("structure", [])))
    promise = Promise(
        lower_triangular="lower_triangular" in names,
        upper_triangular="upper_triangular" in names,
        symmetric="symmetric" in names,
        sorted="sorted" in names,
    )
    if names and made.dim():
        made = preserve(Structure(one_hot="one_hot" in names).with_promise(promise), made, made)
    dtype = cast("torch.dtype", getattr(torch, described["dtype"]))
    return made.to(dtype)


def _whole(described: Described, shape: Sequence[int], dtype: torch.dtype, *, shuffled: bool) -> Tensor:
    """Return the recorded integers, shuffled if they had no order; random ones of their range if there were many."""
    if "data" not in described:
        if "least" not in described:
            return torch.zeros(tuple(shape), dtype=dtype, device="cuda")
        made = torch.randint(described["least"], described["most"] + 1, tuple(shape), device="cuda").to(dtype)
        return made.flatten().sort().values.reshape(tuple(shape)) if described["ascending"] else made
    data = bytearray(zlib.decompress(base64.b64decode(described["data"])))
    made = torch.frombuffer(data, dtype=dtype).reshape(tuple(shape)).to("cuda")
    if shuffled and dtype is not torch.bool and made.numel() >= _SHUFFLED_LEAST:
        made = made.flatten()[torch.randperm(made.numel(), device="cuda")].reshape(tuple(shape))
    return made


def _copy_in_float64(module: ModuleType, text: str) -> ModuleType:
    """Return a copy of a module whose kernels compute in float64, as do those imported from other files.

    Raises:
        WorkloadError: the copy cannot be executed.
    """
    name = f"{module.__name__}__float64"
    if name in _COPIES:
        return _COPIES[name]
    wide = lifted(text)
    path = f"{(module.__file__ or name).removesuffix('.py')}__float64.py"
    copy = ModuleType(name)
    copy.__file__, copy.__package__, copy.__spec__ = path, module.__package__, spec_from_loader(name, loader=None)
    linecache.cache[path] = (len(wide), None, wide.splitlines(keepends=True), path)  # Triton reads its functions' text
    sys.modules[name] = _COPIES[name] = copy
    try:
        with blame(Path(path), "cannot be executed in float64"):
            exec(compile(wide, path, "exec"), vars(copy))
    except BaseException:
        del sys.modules[name], _COPIES[name]
        raise
    _widen_tables(copy)
    _widen_borrowed(copy, module)
    return copy


def _widen_tables(module: ModuleType) -> None:
    """Add float64 to tables from torch's types to Triton's."""
    import triton.language as tl

    for key, value in list(vars(module).items()):
        if isinstance(value, dict) and torch.float64 not in value and torch.float32 in value:
            table = cast("dict[Any, Any]", value)
            wide = tl.float64 if table[torch.float32] == tl.float32 else table[torch.float32]
            setattr(module, key, {**table, torch.float64: wide})


def _widen_borrowed(copy: ModuleType, module: ModuleType) -> None:
    """Replace kernels of the user's other files by those of copies of these files."""
    for key, value in list(vars(copy).items()):
        function = getattr(value, "fn", None)
        if type(value).__name__ not in ("JITFunction", "InterpretedFunction") or function is None:
            continue
        owner = sys.modules.get(function.__module__)
        file = getattr(owner, "__file__", None)
        if owner is None or file is None or owner in (copy, module) or owner.__name__.partition(".")[0] == "triton":
            continue
        other = _copy_in_float64(owner, Path(file).read_text(encoding="utf-8"))
        setattr(copy, key, getattr(other, function.__name__, value))
