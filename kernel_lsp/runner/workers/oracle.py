"""The oracle: knows the inputs and what is right, and never runs a candidate.

It makes inputs, writes them into the memory of the worker under test, and compares what comes back with the reference
in float64. Expected values stay in this process.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kernel_lsp.device.slab import GUARD, POISON, Slab, TensorSpec, lay_out, open_slab, torch_dtype
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.comparison import Bounds, Distance
from kernel_lsp.workload import families
from kernel_lsp.workload.load import Workload, as_outputs, blame, describe_case, load_workload, make_inputs
from kernel_lsp.workload.placement import Instead

if TYPE_CHECKING:
    from kernel_lsp.workload.problem import Choice, Problem

_FREE_SHARE = 0.9  # of device memory that is free, for judging a problem
_KEEP_SHARE = 0.25  # of free device memory, for expected values of past inputs


@dataclass(frozen=True)
class _Inputs:
    """One set of inputs: a case with the values and layout of a family, drawn from one seed."""

    case: int
    family: str
    seed: int
    leaves: tuple[Any, ...]
    specs: tuple[TensorSpec, ...]
    nbytes: int

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]


@dataclass(frozen=True)
class _Expected:
    outputs: tuple[Tensor, ...]
    scales: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.outputs)


def methods(device: str, factor: float) -> Mapping[str, Callable[..., Any]]:
    """What this role answers to; `device` is `cuda` or `cpu`, `factor` the error allowed relative to the baseline's."""
    oracle = Oracle(device, factor)
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
        "copy_bandwidth": oracle.copy_bandwidth,
        "probe": oracle.probe,
    }


class Oracle:
    """State of one oracle process; every method is a request that the parent makes."""

    def __init__(self, device: str, factor: float) -> None:
        self._device, self._factor = device, factor
        self._placement = Instead if device == "cpu" else contextlib.nullcontext
        self._workload: Workload | None = None
        self._inputs: dict[str, _Inputs] = {}
        self._expected: OrderedDict[str, _Expected] = OrderedDict()
        self._slabs: dict[str, dict[str, Slab]] = {}
        self._bounds: dict[str, tuple[Bounds, ...]] = {}
        self._baseline: dict[str, tuple[Distance, ...]] = {}
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def load(self, text: str, path: str, seed: int = 0) -> dict[str, Any]:
        """Load the workload and describe it; `seed` is that of a problem's weights."""
        with self._placement():
            workload = load_workload(text, Path(path), self._device, seed)
            choice: dict[str, Any] = {"decisive": list(range(len(workload.cases))), "advisory": [], "why": ""}
            if workload.problem is not None:
                chosen = self._choose(workload.problem)
                workload, choice = replace(workload, cases=chosen.cases), asdict(chosen)
        self._workload = workload
        return choice | {
            "weights": list(workload.weights),
            "renews_weights": workload.problem is not None and workload.problem.renews_weights,
            "calls": [asdict(call) for call in workload.calls],
            "cases": [describe_case(case) for case in workload.cases],
            "arguments": list(workload.argument_names),
            "nondeterministic": workload.nondeterministic,
            "contract": asdict(workload.contract),
            "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size if self._device == "cuda" else 0,
        }

    def _choose(self, problem: "Problem") -> "Choice":
        """The cases of a problem that this machine runs, after a look whether it has a right answer."""
        from kernel_lsp.workload.problem import choose_for_emulator, choose_for_gpu

        if self._device == "cuda":
            chosen = choose_for_gpu(problem, int(_FREE_SHARE * torch.cuda.mem_get_info()[0]))
        else:
            chosen = choose_for_emulator(problem)
        problem.check(chosen.cases[chosen.decisive[0]])
        self._free_temporaries()
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
        torch.manual_seed(seed)
        chosen = families.FAMILIES[family]
        with self._placement(), torch.no_grad():
            leaves = make_inputs(workload, workload.cases[case])
            generator = torch.Generator(device=self._device).manual_seed(seed + 1)
            leaves = self._changed(chosen, leaves, generator)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        for tensor in tensors:
            if tensor.device.type != self._device:
                raise WorkloadError(
                    f"`inputs` made a tensor on {tensor.device} for case {describe_case(workload.cases[case])}",
                    workload.path,
                    cure='Make inputs with device="cuda".',
                )
        specs, nbytes = lay_out(
            [(t.dtype, tuple(t.shape), t.stride()) for t in tensors],
            shifted=chosen.layout.shifted,
            strided=chosen.layout.strided,
        )
        return self._keep(key, _Inputs(case, family, seed, leaves, specs, nbytes))

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
        torch.manual_seed(seed)
        with self._placement(), torch.no_grad():
            fresh = make_inputs(workload, workload.cases[inputs.case])
            other = _another(inputs.leaves[argument], fresh[argument] if argument < len(fresh) else None)
        if other is None:
            return {"varied": None, "matters": False}
        leaves = (*inputs.leaves[:argument], other, *inputs.leaves[argument + 1 :])
        varied = self._keep(key, replace(inputs, seed=seed, leaves=leaves))
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
        torch.manual_seed(seed)
        with self._placement(), torch.no_grad():
            fresh = make_inputs(workload, workload.cases[inputs.case])
            generator = torch.Generator(device=self._device).manual_seed(seed + 1)
            given = len(inputs.leaves) - len(workload.weights)
            touched = families.touched(inputs.leaves[:given], fresh[:given], generator)
            leaves = (*touched, *inputs.leaves[given:])
        if base in self._bounds:
            self._bounds[key], self._baseline[key] = self._bounds[base], self._baseline[base]
        return self._keep(key, replace(inputs, seed=seed, leaves=leaves))

    def _keep(self, key: str, inputs: _Inputs) -> dict[str, Any]:
        self._inputs[key] = inputs
        self._expected.pop(key, None)
        remaining = iter(inputs.specs)
        arguments = [next(remaining).to_json() if isinstance(leaf, Tensor) else leaf for leaf in inputs.leaves]
        nbytes = sum(t.nbytes for t in inputs.tensors)
        return {"arguments": arguments, "nbytes": inputs.nbytes, "input_bytes": nbytes}

    def attach(self, subject: str, name: str, handle: dict[str, Any]) -> None:
        """Open a slab of a worker under test: its inputs under `name` `in:...`, its outputs under `out`."""
        self._slabs.setdefault(subject, {})[name] = open_slab(handle)

    def detach(self, subject: str) -> None:
        """Let go of a worker's memory."""
        self._slabs.pop(subject, None)

    def fill(self, subject: str, slab: str, key: str) -> None:
        """Write the inputs of `key` into a worker's slab and fence them."""
        inputs, target = self._inputs[key], self._slabs[subject][slab]
        target.poison()
        for spec, tensor in zip(inputs.specs, inputs.tensors, strict=True):
            families.own_elements(target.view(spec)).copy_(families.own_elements(tensor))
        self._synchronize()

    def compare(
        self, subject: str, slab: str, key: str, outputs: list[dict[str, Any]], *, baseline: bool
    ) -> dict[str, Any]:
        """Compare a worker's outputs with the truth; the baseline's own errors set what a candidate may be off by."""
        inputs, expected = self._inputs[key], self._expect(key)
        answer: dict[str, Any] = {"shape_error": None, "distances": [], "fingerprints": [], "baseline": []}
        answer |= self._untouched(subject, slab, inputs)
        answer["finite"] = all(bool(torch.isfinite(truth).all()) for truth in expected.outputs)
        if len(outputs) != len(expected.outputs):
            answer["shape_error"] = (
                f"`launch` returned {len(outputs)} outputs where the reference has {len(expected.outputs)}"
            )
            return answer
        distances: list[Distance] = []
        bounds: list[Bounds] = []
        for number, described in enumerate(outputs):
            spec, truth = TensorSpec.from_json(described), expected.outputs[number]
            if spec.shape != tuple(truth.shape):
                answer["shape_error"] = (
                    f"output {number} has shape {list(spec.shape)} where the reference has {list(truth.shape)}"
                )
                return answer
            actual = self._slabs[subject]["out"].view(spec)
            whole_model = self._loaded().problem is not None
            table = comparison.table_bounds(actual.dtype, whole_model=whole_model)
            allowed = table if baseline else self._bounds[key][number]
            found = comparison.distance(actual, truth, expected.scales[number], allowed)
            if baseline and found.first_wrong is not None and self._within_declared(actual, truth):
                found = Distance(found.max, found.rms, None, 0)
            distances.append(found)
            bounds.append(comparison.relative_bounds(found, self._factor, actual.dtype))
            answer["distances"].append(
                asdict(found)
                | {
                    "index": None
                    if found.first_wrong is None
                    else list(comparison.unravel(found.first_wrong, spec.shape)),
                    "total": truth.numel(),
                }
            )
            answer["fingerprints"].append(comparison.fingerprint(actual.contiguous().view(-1).view(torch.uint8)))
        if baseline:
            self._bounds[key], self._baseline[key] = tuple(bounds), tuple(distances)
        answer["baseline"] = [{"max": d.max, "rms": d.rms} for d in self._baseline[key]]
        return answer

    def discriminate(self, key: str, other: str, outputs: list[str]) -> list[str]:
        """Names of trivial answers that would pass as right for `key`; `outputs` are the baseline's output types.

        Tried: zeros, the mean everywhere, each input of fitting size, and the right answer to the inputs of `other`.
        """
        truth, foreign = self._expect(key), self._expect(other)
        if not all(t.numel() for t in truth.outputs):
            return []  # nothing to be wrong about
        answers: dict[str, list[Tensor | None]] = {
            "all zeros": [torch.zeros_like(t) for t in truth.outputs],
            "the answer to other inputs": list(foreign.outputs),
        }
        if any(t.numel() > 1 for t in truth.outputs):  # of one number the mean is that number
            answers["the mean everywhere"] = [torch.full_like(t, float(t.double().nanmean())) for t in truth.outputs]
        workload = self._loaded()
        for number, leaf in enumerate(self._inputs[key].leaves):
            if isinstance(leaf, Tensor):
                answers[f"a copy of `{workload.argument_names[number]}`"] = [
                    leaf.reshape(t.shape) if leaf.numel() == t.numel() else None for t in truth.outputs
                ]
        passing: list[str] = []
        for name, tensors in answers.items():
            right = True
            for number, tensor in enumerate(tensors):
                if tensor is None or tensor.shape != truth.outputs[number].shape:
                    right = False
                    break
                shaped = tensor.to(torch_dtype(outputs[number]))
                found = comparison.distance(
                    shaped, truth.outputs[number], truth.scales[number], self._bounds[key][number]
                )
                right = right and found.first_wrong is None
            if right:
                passing.append(name)
        return passing

    def copy_bandwidth(self) -> float:
        """Bytes per second, read plus written, of a large copy on this GPU: the roof for memory-bound kernels."""
        size = min(1 << 30, torch.cuda.mem_get_info()[0] // 8)
        source = torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        times: list[float] = []
        for _ in range(6):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            target.copy_(source)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        del source, target
        self._free_temporaries()
        return 2 * size / min(times)

    def probe(self) -> bool:
        """Whether this process's GPU still computes."""
        return int(torch.ones(1024, device=self._device).sum()) == 1024

    def _expect(self, key: str) -> _Expected:
        if key in self._expected:
            self._expected.move_to_end(key)
            return self._expected[key]
        workload, inputs = self._loaded(), self._inputs[key]
        constants = workload.cases[inputs.case]
        case, reference = describe_case(constants), workload.reference_on(constants)
        wide = [
            leaf.to(torch.float64, copy=True) if isinstance(leaf, Tensor) and leaf.is_floating_point() else _copy(leaf)
            for leaf in inputs.leaves
        ]
        with self._placement(), torch.no_grad():
            try:
                returned = reference(*wide)
            except RuntimeError:
                # Not every operation exists in float64; in the given types it either works or is the user's error.
                with blame(workload.path, f"`reference` raised for case {case}"):
                    returned = reference(*(_copy(leaf) for leaf in inputs.leaves))
            except Exception:
                with blame(workload.path, f"`reference` raised for case {case}"):
                    raise
        outputs = tuple(t.detach().contiguous() for t in as_outputs(workload.path, returned, "reference"))
        expected = _Expected(outputs, tuple(comparison.scale(t) for t in outputs))
        self._expected[key] = expected
        self._forget_old()
        self._free_temporaries()
        return expected

    def _forget_old(self) -> None:
        if self._device == "cpu":
            return
        room = _KEEP_SHARE * torch.cuda.mem_get_info()[1]
        while len(self._expected) > 2 and sum(e.nbytes for e in self._expected.values()) > room:
            self._expected.popitem(last=False)

    def _within_declared(self, actual: Tensor, truth: Tensor) -> bool:
        tolerance = self._loaded().tolerance
        if tolerance is None or not actual.is_floating_point():
            return False
        close = torch.isclose(
            actual.double(), truth.double(), tolerance.get("rtol", 0.0), tolerance.get("atol", 0.0), equal_nan=True
        )
        return bool(close.all())

    def _untouched(self, subject: str, slab: str, inputs: _Inputs) -> dict[str, Any]:
        """Inputs that were changed although the contract does not allow it, and writes outside of any input."""
        workload, memory = self._loaded(), self._slabs[subject][slab]
        names = [n for n, leaf in zip(workload.argument_names, inputs.leaves, strict=False) if isinstance(leaf, Tensor)]
        changed = [
            name
            for name, spec, tensor in zip(names, inputs.specs, inputs.tensors, strict=True)
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

    def _free_temporaries(self) -> None:
        """Give cached memory back: the workers under test share this GPU."""
        if self._device == "cuda":
            torch.cuda.empty_cache()

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
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(fresh)
    return 1.5 * value + 0.75 if value.is_floating_point() else None


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
