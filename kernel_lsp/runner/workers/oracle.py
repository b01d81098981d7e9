"""The oracle: knows the inputs and what is right, and never runs a candidate.

It makes inputs, writes them into the memory of the worker under test, and compares what comes back with the reference
in float64. Expected values stay in this process.
"""

import contextlib
import math
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from kernel_lsp.build.binary import Binary
from kernel_lsp.device.slab import (
    GUARD,
    POISON,
    Slab,
    TensorSpec,
    dtype_name,
    give_back,
    lay_out,
    open_slab,
    torch_dtype,
)
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.comparison import Bounds, Distance, Measure
from kernel_lsp.workload import families
from kernel_lsp.workload.execute import blame
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.workload import Workload, as_outputs, describe_case, in_float64, make_inputs

if TYPE_CHECKING:
    from kernel_lsp.workload.problem import Choice, Problem

_FREE_SHARE = 0.9  # of device memory that is free, for judging a problem
_KEEP_SHARE = 0.25  # of free device memory at most, for past inputs and the expected values to them
_LARGE_SHARE = 0.25  # of free device memory: what takes more to judge must be lean with it
_COARSE = {family.name for family in families.FAMILIES.values() if family.coarse}
_LARGE_BYTES = 1 << 30  # what is made beside inputs of this size is given back where little is free


@dataclass(frozen=True)
class _Inputs:
    """One set of inputs, a case with the values and layout of a family: how to `make` its leaves, each time the same.

    `specs` say how its tensors lie in a slab of `nbytes`.
    """

    case: int
    family: str
    make: Callable[[], tuple[Any, ...]]
    specs: tuple[TensorSpec, ...]
    nbytes: int


@dataclass(frozen=True)
class _Expected:
    outputs: tuple[Tensor, ...]
    finite: bool


@dataclass(frozen=True)
class _Baseline:
    """What the baseline's outputs on a set of inputs are, one by one: their types, errors, and errors allowed.

    `scales` are what errors are measured by.
    """

    dtypes: tuple[torch.dtype, ...]
    scales: tuple[float, ...]
    distances: tuple[Distance, ...]
    bounds: tuple[Bounds, ...]


@dataclass(frozen=True)
class _Compared:
    """How far each output is off, and whether one of them is `blank`."""

    distances: tuple[Distance, ...]
    blank: bool


_Bits = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...]]
"""What tells outputs apart: type and shape of each, and its checksum."""


@dataclass
class _Kept:
    """What is in memory of one set of inputs: its leaves, and what is expected, once that was asked for."""

    leaves: tuple[Any, ...]
    expected: _Expected | None = None

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*_tensors(self.leaves), *(self.expected.outputs if self.expected else ())))


def methods(device: str, factor: float, slack: float = 1.0, *, plain: bool = False) -> Mapping[str, Callable[..., Any]]:
    """What this role answers to; `device` is `cuda` or `cpu`.

    `factor` is the error allowed relative to the baseline's, `slack` how many times over; `plain` says that the
    baseline is PyTorch alone (`relative_bounds`).
    """
    oracle = Oracle(device, factor, slack, plain=plain)
    return {
        "load": oracle.load,
        "sizes": oracle.sizes,
        "prepare": oracle.prepare,
        "vary": oracle.vary,
        "touch": oracle.touch,
        "rehearse": oracle.rehearse,
        "attach": oracle.attach,
        "detach": oracle.detach,
        "fill": oracle.fill,
        "compare": oracle.compare,
        "discriminate": oracle.discriminate,
        "bandwidth": oracle.bandwidth,
        "probe": oracle.probe,
    }


class Oracle:
    """State of one oracle process; every method is a request that the parent makes."""

    def __init__(self, device: str, factor: float, slack: float = 1.0, *, plain: bool = False) -> None:
        self._device, self._factor, self._slack = device, factor, slack
        self._placement = Instead if device == "cpu" else contextlib.nullcontext
        self._workload: Workload | None = None
        self._inputs: dict[str, _Inputs] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # least recently used first
        self._prints: dict[str, tuple[int, ...]] = {}  # of leaves that were not kept at some time
        self._finite: dict[str, bool] = {}  # whether what is expected is
        self._budget: float = math.inf  # bytes that may be kept beside the set of inputs in use
        self._slabs: dict[str, dict[str, Slab]] = {}
        self._baseline: dict[str, _Baseline] = {}
        self._right: defaultdict[str, dict[_Bits, _Compared]] = defaultdict(dict)
        self._measure: Measure | None = None
        self._salt = secrets.randbits(62)  # so that nobody else can make two outputs of one checksum
        self._checksum: Callable[[Tensor], int] = lambda tensor: comparison.fingerprint(_bytes(tensor), self._salt)
        self._plain = plain
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def load(
        self,
        text: str,
        path: str,
        seed: int = 0,
        keep: int | None = None,
        own: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Load the workload and describe it; `seed` is that of a problem's weights.

        `keep` is how many bytes of past inputs and expected values may be kept, where it is not for memory to say;
        `own` the compiled `distance` and `probes` of `device/`, where there is a GPU.
        """
        if own is not None:
            self._use(own)
        free = torch.cuda.mem_get_info()[0] if self._device == "cuda" else None
        with self._placement():
            workload = load_workload(text, Path(path), self._device, seed)
            choice: dict[str, Any] = {"decisive": list(range(len(workload.cases))), "advisory": [], "why": ""}
            if workload.problem is not None:
                chosen = self._choose(workload.problem, free)
                workload, choice = replace(workload, cases=chosen.cases), asdict(chosen)
        self._workload, large = workload, False
        if free is not None:
            self._budget = _KEEP_SHARE * free
            if workload.problem is not None:
                takes = _most_needed(workload.problem, choice)
                large, self._budget = takes > _LARGE_SHARE * free, min(self._budget, _FREE_SHARE * free - takes)
        if keep is not None:
            self._budget = keep
        return choice | {
            "weights": list(workload.weights),
            "renews_weights": workload.problem is not None and workload.problem.renews_weights,
            "calls": [asdict(call) for call in workload.calls],
            "large": large,
            "cases": [describe_case(case) for case in workload.cases],
            "arguments": list(workload.argument_names),
            "nondeterministic": workload.nondeterministic,
            "contract": asdict(workload.contract),
            "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size if self._device == "cuda" else 0,
        }

    def _use(self, own: dict[str, Any]) -> None:
        from kernel_lsp.device.driver import LoadedModule
        from kernel_lsp.runner.workers.fused import FusedChecksum, FusedMeasure

        torch.zeros(1, device="cuda")  # makes torch's context the current one
        loaded = {name: LoadedModule(TypeAdapter(Binary).validate_python(own[name]), {}) for name in own}
        self._measure, checksum = FusedMeasure(loaded["distance"]), FusedChecksum(loaded["probes"], self._salt)
        self._checksum = lambda tensor: int(checksum(tensor))

    def _choose(self, problem: "Problem", free: int | None) -> "Choice":
        """The cases of a problem that this machine runs, after a look whether it has a right answer."""
        from kernel_lsp.workload.problem import choose_for_emulator, choose_for_gpu

        chosen = choose_for_emulator(problem) if free is None else choose_for_gpu(problem, int(_FREE_SHARE * free))
        problem.check(chosen.cases[chosen.decisive[0]])
        self._free_temporaries(whatever=True)
        return chosen

    def sizes(self) -> list[int]:
        """Bytes of the inputs of each case, found without making them where `inputs` allows that."""
        workload = self._loaded()
        sizes: list[int] = []
        for case in workload.cases:
            try:
                with Instead("meta"), torch.no_grad():
                    leaves = make_inputs(workload, case)
            except WorkloadError:  # it looks at values, which shapes alone do not have
                with self._placement(), torch.no_grad():
                    leaves = make_inputs(workload, case)
            sizes.append(sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor)))
        return sizes

    def rehearse(self, key: str) -> list[list[int]]:
        """Run the reference on the inputs of `key`; the shapes of what it returns."""
        return [list(output.shape) for output in self._expect(key).outputs]

    def prepare(self, key: str, case: int, family: str, seed: int) -> dict[str, Any]:
        """Make inputs under `key`; the answer says how a worker must lay out memory for them, not their values."""
        workload = self._loaded()
        constants, chosen = workload.cases[case], families.FAMILIES[family]

        def make() -> tuple[Any, ...]:
            leaves = self._fresh(case, seed)
            return self._changed(chosen, leaves, torch.Generator(device=self._device).manual_seed(seed + 1))

        leaves = self._made(make)
        tensors = _tensors(leaves)
        for tensor in tensors:
            if tensor.device.type != self._device:
                raise WorkloadError(
                    f"`inputs` made a tensor on {tensor.device} for case {describe_case(constants)}",
                    workload.path,
                    cure='Make inputs with device="cuda".',
                )
        specs, nbytes = lay_out(
            [(t.dtype, tuple(t.shape), t.stride()) for t in tensors],
            shifted=chosen.layout.shifted,
            strided=chosen.layout.strided,
        )
        return self._keep(key, _Inputs(case, family, make, specs, nbytes), leaves)

    def _fresh(self, case: int, seed: int) -> tuple[Any, ...]:
        """Inputs of a case as the workload makes them."""
        workload = self._loaded()
        if workload.problem is not None:  # the first time its module is executed, and might draw random numbers
            workload.problem.call(workload.cases[case])
        torch.manual_seed(seed)
        return make_inputs(workload, workload.cases[case])

    def _made(self, make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        with self._placement(), torch.no_grad():
            leaves = make()
        if sum(t.nbytes for t in _tensors(leaves)) > _LARGE_BYTES:
            self._free_temporaries()
        return leaves

    def _changed(self, family: families.Family, leaves: tuple[Any, ...], generator: torch.Generator) -> tuple[Any, ...]:
        inputs = len(leaves) - len(self._loaded().weights)
        if family.of_weights:
            return (*leaves[:inputs], *families.apply(family, leaves[inputs:], generator))
        return (*families.apply(family, leaves[:inputs], generator), *leaves[inputs:])

    def vary(self, key: str, base: str, argument: int, seed: int) -> dict[str, Any]:
        """Keep the inputs of `base` with another value of one argument under `key`, laid out alike.

        The answer is `varied`: as `prepare` answers, or None where nothing tells another value (a size, or numbers that
        are the same in each draw); and `matters`: whether the reference's answer is another one.
        """
        workload, inputs = self._loaded(), self._inputs[base]

        def make() -> tuple[Any, ...]:
            leaves = self._leaves(base)
            fresh = self._fresh(inputs.case, seed)
            other = _another(leaves[argument], fresh[argument] if argument < len(fresh) else None)
            if argument >= len(leaves) - len(workload.weights) and isinstance(other, Tensor):
                other = families.renewed(leaves[argument], torch.Generator(self._device).manual_seed(seed))
            return () if other is None else (*leaves[:argument], other, *leaves[argument + 1 :])

        leaves = self._made(make)
        if not leaves:
            return {"varied": None, "matters": False}
        varied = self._keep(key, replace(inputs, family="varied", make=make), leaves)
        try:
            pairs = zip(self._expect(key).outputs, self._expect(base).outputs, strict=True)
            matters = any(a.shape != b.shape or not comparison.same_bits(a, b) for a, b in pairs)
        except (WorkloadError, ValueError):  # it fits no longer with the other arguments
            return {"varied": None, "matters": False}
        return {"varied": varied, "matters": matters}

    def touch(self, key: str, base: str, seed: int) -> dict[str, Any]:
        """Keep the inputs of `base` under `key` with fresh values in a few places of each floating-point tensor.

        So few that whoever looks at samples of the inputs takes them for the same. The answer is as `prepare`'s; what
        outputs may be off by is as for `base`.
        """
        workload, inputs = self._loaded(), self._inputs[base]

        def make() -> tuple[Any, ...]:
            leaves, fresh = self._leaves(base), self._fresh(inputs.case, seed)
            generator = torch.Generator(device=self._device).manual_seed(seed + 1)
            given = len(leaves) - len(workload.weights)
            return (*families.touched(leaves[:given], fresh[:given], generator), *leaves[given:])

        if base in self._baseline:
            self._baseline[key] = self._baseline[base]
        return self._keep(key, replace(inputs, make=make), self._made(make))

    def _keep(self, key: str, inputs: _Inputs, leaves: tuple[Any, ...]) -> dict[str, Any]:
        self._inputs[key] = inputs
        self._prints.pop(key, None)
        self._finite.pop(key, None)
        self._right.pop(key, None)
        self._kept[key] = _Kept(leaves)
        self._forget_old(key)
        remaining = iter(inputs.specs)
        arguments = [next(remaining).to_json() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return {
            "arguments": arguments,
            "nbytes": inputs.nbytes,
            "input_bytes": sum(families.own_elements(t).nbytes for t in _tensors(leaves)),
        }

    def _prints_of(self, leaves: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(self._checksum(tensor) for tensor in _tensors(leaves))

    def _leaves(self, key: str) -> tuple[Any, ...]:
        """The leaves of a set of inputs, made again where they are no longer kept."""
        if key not in self._kept:
            leaves = self._made(self._inputs[key].make)
            if self._prints_of(leaves) != self._prints[key]:
                case = describe_case(self._loaded().cases[self._inputs[key].case])
                said = f"`inputs` makes other values under the same seed for case {case}, which is too large to be kept"
                raise WorkloadError(said, self._loaded().path, cure="Draw them from torch's random numbers alone.")
            self._kept[key] = _Kept(leaves)
        self._forget_old(key)
        return self._kept[key].leaves

    def _forget_old(self, key: str) -> None:
        """Keep what was made for `key`, and of what was made before as much as fits, the latest first."""
        self._kept.move_to_end(key)
        total = sum(kept.nbytes for kept in self._kept.values()) - self._kept[key].nbytes
        while total > self._budget and len(self._kept) > 1:
            old, kept = next(iter(self._kept.items()))
            if old not in self._prints:  # may want memory that is not there: only what has them can be made again
                self._prints[old] = self._prints_of(kept.leaves)
            del self._kept[old]
            total -= kept.nbytes

    def attach(self, subject: str, name: str, handle: dict[str, Any]) -> None:
        """Open a slab of a worker under test: its inputs under `name` `in:...`, its outputs under `out`."""
        self._slabs.setdefault(subject, {})[name] = open_slab(handle)

    def detach(self, subject: str, slab: str | None = None) -> None:
        """Let go of a worker's memory, all of it or the slab called `slab`."""
        if slab is None:
            self._slabs.pop(subject, None)
            self._free_temporaries(whatever=True)  # what comes next may need it
        else:
            self._slabs.get(subject, {}).pop(slab, None)

    def fill(self, subject: str, slab: str, key: str) -> None:
        """Write the inputs of `key` into a worker's slab and fence them."""
        inputs, target = self._inputs[key], self._slabs[subject][slab]
        target.poison(inputs.specs)
        for spec, tensor in zip(inputs.specs, _tensors(self._leaves(key)), strict=True):
            families.own_elements(target.view(spec)).copy_(families.own_elements(tensor))
        self._synchronize()

    def compare(
        self, subject: str, slab: str, key: str, outputs: list[dict[str, Any]], *, baseline: bool
    ) -> dict[str, Any]:
        """Compare a worker's outputs with the truth; the baseline's own errors set what a candidate may be off by.

        Bits that were right for the same inputs before are right again, so they are not read twice. `blank` says
        whether an output holds what memory that nobody has written to holds, and might be right so.
        """
        specs = [TensorSpec.from_json(described) for described in outputs]
        actual = [self._slabs[subject]["out"].view(spec) for spec in specs]
        prints = tuple(map(self._checksum, actual))
        bits = (tuple((spec.dtype, spec.shape) for spec in specs), prints)
        if baseline:
            self._right.pop(key, None)
        found = self._right[key].get(bits) or self._compare_with_truth(key, actual, baseline=baseline)
        answer = {"shape_error": None, "distances": [], "fingerprints": [], "baseline": [], "blank": False}
        answer |= self._untouched(subject, slab, key) | {"finite": self._finite[key]}
        if isinstance(found, str):
            return answer | {"shape_error": found}
        if not baseline and all(distance.first_wrong is None for distance in found.distances):
            self._right[key][bits] = found
        return answer | {
            "distances": [
                asdict(distance)
                | {
                    "index": None
                    if distance.first_wrong is None
                    else list(comparison.unravel(distance.first_wrong, spec.shape)),
                    "total": spec.numbers,
                }
                for distance, spec in zip(found.distances, specs, strict=True)
            ],
            "fingerprints": list(prints),
            "baseline": [{"max": d.max, "rms": d.rms} for d in self._baseline[key].distances],
            "blank": found.blank,
        }

    def _compare_with_truth(self, key: str, outputs: Sequence[Tensor], *, baseline: bool) -> _Compared | str:
        """How far outputs are off, or as a sentence why they cannot be compared; the baseline's are remembered."""
        expected = self._expect(key)
        if len(outputs) != len(expected.outputs):
            return f"`launch` returned {len(outputs)} outputs where the reference has {len(expected.outputs)}"
        whole_model = self._loaded().problem is not None
        coarse = self._inputs[key].family in _COARSE
        distances: list[Distance] = []
        scales: list[float] = []
        bounds: list[Bounds] = []
        blank = False
        for number, (actual, truth) in enumerate(zip(outputs, expected.outputs, strict=True)):
            if actual.shape != truth.shape:
                return f"output {number} has shape {list(actual.shape)} where the reference has {list(truth.shape)}"
            if not baseline and actual.dtype is not self._baseline[key].dtypes[number]:
                own, wanted = dtype_name(actual.dtype), dtype_name(self._baseline[key].dtypes[number])
                return f"output {number} has type {own} where the baseline's has {wanted}"
            table = comparison.table_bounds(actual.dtype, whole_model=whole_model)
            allowed = table if baseline else self._baseline[key].bounds[number]
            if baseline:
                scale, found = self._measured(actual, truth, allowed)
            else:
                scale = self._baseline[key].scales[number]
                found = comparison.distance(actual, truth, scale, allowed, self._measure)
            if baseline and found.first_wrong is not None and self._within_declared(actual, truth):
                found = Distance(found.max, found.rms, None, 0)
            distances.append(found)
            scales.append(scale)
            bounds.append(
                comparison.relative_bounds(
                    found, self._factor, actual.dtype, self._slack, plain=self._plain, coarse=coarse
                )
            )
            if not (actual.is_floating_point() and expected.finite):
                blank |= comparison.holds_blank(actual)
        if baseline:
            dtypes = tuple(actual.dtype for actual in outputs)
            self._baseline[key] = _Baseline(dtypes, tuple(scales), tuple(distances), tuple(bounds))
        return _Compared(tuple(distances), blank)

    def _measured(self, actual: Tensor, truth: Tensor, allowed: Bounds) -> tuple[float, Distance]:
        """What errors are measured by, and the baseline's: where some values stand far apart, the rest if that can be.

        It cannot where the rest is what rounding leaves of values like these.
        """
        if actual.is_floating_point() and (brink := comparison.brink(truth, actual.dtype)) < math.inf:
            of_rest = comparison.scale(truth, actual.dtype, brink)
            found = comparison.distance(actual, truth, of_rest, allowed, self._measure)
            if found.first_wrong is None:
                return of_rest, found
        scale = comparison.scale(truth, actual.dtype)
        return scale, comparison.distance(actual, truth, scale, allowed, self._measure)

    def discriminate(self, key: str, other: str, outputs: list[str]) -> list[str]:
        """Names of trivial answers that would pass as right for `key`; `outputs` are the baseline's output types.

        Tried: zeros, the mean everywhere, each input of fitting size, and the right answer to the inputs of `other`.
        """
        truth, foreign = self._expect(key), self._expect(other)
        if not any(t.numel() for t in truth.outputs):
            return []  # nothing to be wrong about
        answers: dict[str, Callable[[int, Tensor], Tensor | None]] = {
            "all zeros": lambda _, t: torch.zeros_like(t),
            "the answer to other inputs": lambda number, _: foreign.outputs[number],
        }
        if any(t.numel() > 1 for t in truth.outputs):  # of one number the mean is that number
            answers["the mean everywhere"] = lambda _, t: torch.full_like(t, comparison.mean(t))
        workload = self._loaded()
        for position, leaf in enumerate(self._leaves(key)):
            if isinstance(leaf, Tensor):
                answers[f"a copy of `{workload.argument_names[position]}`"] = lambda _, t, leaf=leaf: (
                    leaf.reshape(t.shape) if leaf.numel() == t.numel() else None
                )

        def passes(answer: Callable[[int, Tensor], Tensor | None]) -> bool:
            for number, expected in enumerate(truth.outputs):
                if not expected.numel():
                    continue
                tensor = answer(number, expected)
                if tensor is None or tensor.shape != expected.shape:
                    return False
                shaped = tensor.to(torch_dtype(outputs[number]))
                size, bounds = self._baseline[key].scales[number], self._baseline[key].bounds[number]
                if comparison.distance(shaped, expected, size, bounds, self._measure).first_wrong is not None:
                    return False
            return True

        return [name for name, answer in answers.items() if passes(answer)]

    def bandwidth(self) -> dict[str, float]:
        """See `measure_bandwidth`."""
        from kernel_lsp.runner.workers.bandwidth import measure_bandwidth

        measured = measure_bandwidth()
        self._free_temporaries(whatever=True)
        return measured

    def probe(self) -> bool:
        """Whether this process's GPU still computes."""
        return int(torch.ones(1024, device=self._device).sum()) == 1024

    def _expect(self, key: str) -> _Expected:
        leaves, kept = self._leaves(key), self._kept[key]
        if kept.expected is None:
            outputs = self._reference(self._inputs[key].case, leaves)
            if key not in self._finite:
                self._finite[key] = all(map(comparison.all_finite, outputs))
            kept.expected = _Expected(outputs, self._finite[key])
            self._free_temporaries()
        return kept.expected

    def _reference(self, number: int, leaves: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """What the reference returns on leaves, in float64 where its operations exist there."""
        workload = self._loaded()
        constants = workload.cases[number]
        blaming = blame(workload.path, f"`reference` raised for case {describe_case(constants)}")
        with self._placement(), torch.no_grad():
            returned = in_float64(workload.reference_on(constants), leaves, blaming)
        return tuple(t.detach().contiguous() for t in as_outputs(workload.path, returned, "reference"))

    def _within_declared(self, actual: Tensor, truth: Tensor) -> bool:
        tolerance = self._loaded().tolerance
        if tolerance is None or not actual.is_floating_point():
            return False
        close = torch.isclose(
            actual.double(), truth.double(), tolerance.get("rtol", 0.0), tolerance.get("atol", 0.0), equal_nan=True
        )
        return bool(close.all())

    def _untouched(self, subject: str, slab: str, key: str) -> dict[str, Any]:
        """Inputs that were changed although the contract does not allow it, and writes outside of any input."""
        workload, memory = self._loaded(), self._slabs[subject][slab]
        inputs, leaves = self._inputs[key], self._leaves(key)
        names = [n for n, leaf in zip(workload.argument_names, leaves, strict=False) if isinstance(leaf, Tensor)]
        changed = [
            name
            for name, spec, tensor in zip(names, inputs.specs, _tensors(leaves), strict=True)
            if name not in workload.contract.mutates and not comparison.same_bits(memory.view(spec), tensor)
        ]
        trampled: list[dict[str, Any]] = []
        for name, spec in zip(names, inputs.specs, strict=True):
            end = spec.offset + spec.span
            for side, guard in (
                ("before", memory.data[spec.offset - GUARD : spec.offset]),
                ("past", memory.data[end : end + GUARD]),
            ):
                touched = guard != POISON
                if bool(touched.any()):
                    first = int(touched.to(torch.uint8).argmax())
                    away = first if side == "past" else GUARD - first
                    trampled.append({"input": name, "side": side, "bytes": away, "count": int(touched.sum())})
        return {"changed_inputs": changed, "trampled": trampled}

    def _loaded(self) -> Workload:
        assert self._workload is not None, "the parent loads the workload first"
        return self._workload

    def _free_temporaries(self, *, whatever: bool = False) -> None:
        """Give cached memory back as `give_back` does: the workers under test share this GPU."""
        if self._device == "cuda":
            give_back(whatever=whatever)

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def _another(value: Any, fresh: Any) -> Any:
    """Another value of an argument: a fresh draw of it, or where that is the same the value moved; None if neither."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return fresh if isinstance(fresh, float) and fresh != value else 1.25 * value + 0.25
    if not isinstance(value, Tensor):
        return None
    alike = isinstance(fresh, Tensor) and (fresh.shape, fresh.dtype) == (value.shape, value.dtype)
    if alike and not comparison.same_bits(fresh, value):
        other = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        own = families.own_elements(other)
        own.copy_(fresh[tuple(slice(extent) for extent in own.shape)])
        return other
    return 1.5 * value + 0.75 if value.is_floating_point() else None


def _tensors(leaves: tuple[Any, ...]) -> list[Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _most_needed(problem: "Problem", choice: Mapping[str, Any]) -> int:
    from kernel_lsp.workload.problem import needed

    found = [problem.footprint(choice["cases"][case]) for case in choice["decisive"]]
    return max((needed(footprint) for footprint in found if footprint is not None), default=0)
