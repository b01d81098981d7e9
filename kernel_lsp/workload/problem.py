"""A KernelBench problem (Ouyang et al., arXiv 2502.10517) as a workload. Worker processes only: runs the user's code.

A problem is a Python file with `Model`, `get_inputs` and `get_init_inputs`. Its arguments, for the judge, are the
tensors and numbers that `get_inputs` returns, and after them the parameters and buffers of one `Model`, by their
names, so that oracle and candidates share weights by their values. The right answer is `Model` on these arguments, in
the mode that it is constructed in.

**Cases.** The case as written always decides. A problem defines no other sizes, and an answer may rely on those
that it has, so others serve only machines that cannot run these: sizes are halved, largest first, for as long as
the problem stays valid, until they fit the GPU's memory or the emulator; halving preserves most divisibility. Such a
case decides in place of the one as written. A last case, with odd sizes, is run on the emulator to test an answer on
other sizes; it never decides.
"""

import ast
import copy
import inspect
import itertools
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]
from torch.utils import _pytree as pytree

from kernel_lsp import policy
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.workload import families
from kernel_lsp.workload.answer import build_model, form, nest, on_device, outputs_of, seeded
from kernel_lsp.workload.call import Call
from kernel_lsp.workload.constants import Case, constants_of, with_constants
from kernel_lsp.workload.contract import Contract
from kernel_lsp.workload.execute import blame, load_module
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.workload import Workload, describe_case, in_float64

_PART = 1 << 24  # elements compared at once

_CONTRACT = Contract(contiguous=True, aligned=16, finite=True)
"""The contract of every problem: its inputs have these properties."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The size of a case in bytes: inputs, weights and outputs."""

    inputs: int
    weights: int
    outputs: int

    @property
    def total(self) -> int:
        """Return the sum of all three."""
        return self.inputs + self.weights + self.outputs

    @property
    def moved(self) -> int:
        """Return the bytes of inputs and outputs; with few values a test is weak, and a normalisation of two is all
        rounding.
        """
        return self.inputs + self.outputs

    def much_less_than(self, other: "Footprint") -> bool:
        """Return True if a halved size was worth it, in total or for inputs and outputs."""
        if self.total <= policy.PROBLEM_WORTHWHILE_SHARE * other.total:
            return True
        return other.moved > policy.PROBLEM_SMALL_BYTES and self.moved <= policy.PROBLEM_WORTHWHILE_SHARE * other.moved


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """The cases of a problem that a machine can run, the one as written first; the other fields hold indices.

    Attributes:
        cases: the constants of each.
        decisive: those that decide.
        advisory: those that only test an answer on other sizes.
        why: why the case as written does not decide; empty if it does.
    """

    cases: tuple[dict[str, int], ...]
    decisive: tuple[int, ...] = (0,)
    advisory: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class _Instance:
    """The problem's module, executed with the constants of one case."""

    model: type[nn.Module]
    get_inputs: Callable[[], Any]
    init: list[Any]


def choose_for_gpu(problem: "Problem", free: int) -> CaseSelection:
    """Return the case as written, or the largest that can be judged in `free` bytes of GPU memory."""
    case, found = problem.shrunk(lambda footprint: needed(footprint) <= free)
    written = dict(problem.constants)
    if case == written:
        return CaseSelection((written,))
    takes = f" needs {needed(whole) / 2**30:.0f} GiB to judge" if (whole := problem.footprint(written)) else ""
    why = f"the case as written{takes}, and {free / 2**30:.0f} GiB of GPU memory are free"
    if found is None or needed(found) > free:
        raise CannotJudgeError(f"{why}; no smaller case fits either", problem.path)
    return CaseSelection((written, case), (1,), why=why)


def choose_for_emulator(problem: "Problem") -> CaseSelection:
    """Return a case that is small enough to be emulated, if the problem allows, and one with odd sizes.

    Raises:
        CannotJudgeError: it cannot be made small enough for a CPU.
    """
    case, found = problem.shrunk(lambda footprint: footprint.total <= policy.PROBLEM_EMULATED_BYTES)
    written = dict(problem.constants)
    if found is None or found.total > policy.PROBLEM_CPU_BYTES:
        raise CannotJudgeError("its sizes cannot be made small enough for a CPU", problem.path)
    if case == written:
        return CaseSelection((written,))
    odd = problem.odd(case)
    why = "the case as written needs a GPU"
    return CaseSelection((written, case, *([odd] if odd else [])), (1,), (2,) if odd else (), why)


def needed(footprint: Footprint) -> int:
    """Return the most bytes of GPU memory that judging takes, in float32, where both sides are timed.

    Each side has its inputs and, in a recorded sample, two outputs and intermediates; the candidate has its last output
    once more, for the comparison. The oracle has a set of inputs in their own type and in float64, and the right answer
    in float64 with intermediates. Intermediates are unknown, and assumed to be as large as outputs.
    """
    given, outputs = footprint.inputs + footprint.weights, footprint.outputs
    side = given + 2 * outputs + outputs
    oracle = given + 2 * given + 2 * outputs + 2 * outputs
    return 2 * side + outputs + oracle


def problem_workload(text: str, path: Path, device: str = "cpu", seed: int = 0) -> Workload:
    """Return the workload of a problem, with only the case as written.

    Args:
        text: the problem's text.
        path: its file.
        device: `cuda`, or `cpu` on the fake GPU.
        seed: seed of the weights that `Model` draws.

    Raises:
        WorkloadError: the file cannot be executed, or is no problem.
    """
    problem = Problem(text, path, device, seed)
    return Workload(
        path=path,
        cases=(dict(problem.constants),),
        inputs=problem.inputs,
        reference=problem.reference,
        launch=None,
        argument_names=problem.argument_names,
        contract=_CONTRACT,
        weights=problem.weight_names,
        problem=problem,
    )


class Problem:
    """One problem; each set of constants is executed as a module of its own."""

    def __init__(self, text: str, path: Path, device: str, seed: int) -> None:
        self._text, self.path, self._device, self._seed = text, path, device, seed
        self.constants: Case = constants_of(text)
        self._instances: dict[str, _Instance] = {}
        self._models: dict[tuple[str, str], nn.Module] = {}
        self._calls: dict[str, Call] = {}
        self.renews_weights = False
        self._instance({})

    @cached_property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of all arguments: inputs by their parameters of `forward`, then weights."""
        with Instead("meta"), torch.no_grad():
            instance = self._instance({})
            given = self._given(instance)
            parameters = list(inspect.signature(instance.model.forward).parameters)[1:]
            weights = tuple(self._weights({}))
        names: list[str] = []
        for number, argument in enumerate(given):
            first = parameters[number] if number < len(parameters) else f"input {number}"
            for path, leaf in pytree.tree_leaves_with_path(argument):
                if isinstance(leaf, (Tensor, bool, int, float)):
                    names.append(first + pytree.keystr(path))
        return (*names, *weights)

    @cached_property
    def weight_names(self) -> tuple[str, ...]:
        """Return the names of the parameters and buffers that the right answer depends on."""
        with Instead("meta"), torch.no_grad():
            return tuple(self._weights({}))

    def inputs(self, **case: int) -> tuple[Any, ...]:
        """Return the arguments of a case: fresh random inputs, and weights as `Model` initialises them."""
        leaves = pytree.tree_leaves(self._given(self._instance(case)))
        given = tuple(leaf for leaf in leaves if isinstance(leaf, (Tensor, bool, int, float)))
        weights = list(self._weights(case).values())
        if self.renews_weights:
            weights = [weight if weight.is_meta else families.made_different(weight) for weight in weights]
        return (*(leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in given), *weights)

    def reference(self, case: Case, *leaves: Any) -> tuple[Tensor, ...]:
        """Return the result of `Model`; weights are the last leaves, perhaps of a wider type than the model's own."""
        model, call = self._model(case), self.call(case)
        state = dict(zip(call.weights, leaves[call.inputs :], strict=True))
        wide = any(isinstance(leaf, Tensor) and leaf.dtype == torch.float64 for leaf in leaves)
        for name, tensor in _state(model).items():
            if name not in state:  # a forward may change it
                widened = wide and tensor.is_floating_point()
                state[name] = tensor.detach().to(torch.float64 if widened else tensor.dtype, copy=True)
        with on_device():
            # A copy: assignments of a forward to the model must not reach the next one.
            arguments = tuple(nest(call, leaves[: call.inputs]))
            returned = torch.func.functional_call(copy.copy(model), state, arguments)
        return outputs_of(returned)

    def call(self, case: Case) -> Call:
        """Return the calls that build and run the model on a case."""
        key = describe_case(case)
        if key not in self._calls:
            self._calls[key] = self._call(case)
        return self._calls[key]

    def _call(self, case: Case) -> Call:
        instance = self._instance(case)
        with Instead("meta"), torch.no_grad():
            leaves, spec = pytree.tree_flatten(self._given(instance))
            forms = tuple(map(form, self._weights(case).values()))
        given = [isinstance(leaf, (Tensor, bool, int, float)) for leaf in leaves]
        return Call(
            init=self._literal(instance.init, "get_init_inputs"),
            tree=pytree.treespec_dumps(spec),
            fixed=tuple((n, self._literal(leaf, "get_inputs")) for n, leaf in enumerate(leaves) if not given[n]),
            inputs=sum(given),
            weights=self.weight_names,
            forms=forms,
            seed=self._seed,
            constants={n: case[n] for n in self.constants if case.get(n, self.constants[n]) != self.constants[n]},
            written=dict(self.constants),
        )

    def check(self, case: Case) -> None:
        """Check that a case has one right answer, if necessary with varied weights.

        A normalisation's weights are ones and zeros until it is trained. With them the right answer may be zero except
        for rounding, and any small output would pass for right: then `inputs` varies the weights.

        Raises:
            WorkloadError: the model's answer is random, is only rounding error, or is missing.
        """
        with torch.no_grad():
            leaves = self.inputs(**case)
            with seeded(1, self._device), self._blaming(case):
                before = _random_states(self._device)
                answer = self.reference(case, *leaves)
                draws = _random_states(self._device) != before
            if not answer:
                raise WorkloadError("`Model` returns no tensor", self.path)
            exact = self._exact(case, leaves, 1)
            if draws:
                self._require_one_answer(exact, self._exact(case, leaves, 2))
            if _is_rounding(answer, exact):
                self.renews_weights = True
                with seeded(3, self._device):
                    leaves = self.inputs(**case)
                    answer = self.reference(case, *leaves)
                if _is_rounding(answer, self._exact(case, leaves, 3)):
                    raise WorkloadError("the answer of `Model` is made of rounding errors", self.path)

    def _require_one_answer(self, exact: tuple[Tensor, ...], again: tuple[Tensor, ...]) -> None:
        pairs = zip(exact, again, strict=True)
        if not all(torch.allclose(a, b, equal_nan=True) for pair in pairs for a, b in _parts(*pair)):
            said = "`Model` gives another answer each time: it draws random numbers"
            fix = "Have `forward` draw none; `nn.Dropout` draws them until `eval()` is called."
            raise WorkloadError(said, self.path, fix=fix)

    def _exact(self, case: Case, leaves: tuple[Any, ...], seed: int) -> tuple[Tensor, ...]:
        """Return the answer in float64, where the order of a library's sums changes only the last digits."""
        with seeded(seed, self._device):
            return in_float64(partial(self.reference, case), leaves, self._blaming(case))

    def _blaming(self, case: Case) -> blame:
        return blame(self.path, f"`Model` raised for case {describe_case(case)}")

    def shrunk(self, fits: Callable[[Footprint], bool]) -> tuple[dict[str, int], Footprint | None]:
        """Return the case as written with its sizes halved, together if possible, until it fits; and its footprint."""
        case = dict(self.constants)
        found = self.footprint(case)
        stuck: set[tuple[str, ...]] = set()
        for _ in range(policy.PROBLEM_MOST_PROBES):
            names = next(_halvable(case, stuck), None)
            if names is None or (found is not None and fits(found)):
                break
            smaller = case | {name: case[name] // 2 for name in names}
            after = self.footprint(smaller)
            if after is None or (found is not None and not after.much_less_than(found)):
                stuck.add(names)
            else:
                case, found = smaller, after
        return case, found

    def odd(self, case: Case) -> dict[str, int] | None:
        """Return a case with the halved sizes made odd, as far as the problem allows; None if it allows none."""
        found = dict(case)
        for name, value in case.items():
            if value != self.constants[name] and value % 2 == 0:
                tried = found | {name: value - 1 if value > 2 else value + 1}
                if self.footprint(tried) is not None:
                    found = tried
        return found if found != dict(case) else None

    def footprint(self, case: Case) -> Footprint | None:
        """Return the size of a case, computed from shapes; None if the problem is not valid with these constants.

        If an operation's result shape depends on values, outputs count as 0 until the case is small enough to run.
        """
        try:
            with torch.no_grad():
                with Instead("meta"):
                    weights = self._weights(case)
                    if tuple(weights) != self.weight_names:
                        return None
                    leaves = self.inputs(**case)
                    inputs, kept = _nbytes(leaves[: len(leaves) - len(weights)]), _nbytes(weights.values())
                    if self._has_shapes:
                        return Footprint(inputs, kept, _nbytes(self.reference(case, *leaves)))
                if inputs + kept > policy.PROBLEM_TRIED_BYTES:
                    return Footprint(inputs, kept, 0)
                with Instead("cpu"):
                    return Footprint(inputs, kept, _nbytes(self.reference(case, *self.inputs(**case))))
        except Exception:  # the user's code may raise anything
            return None
        finally:
            self._models = {key: model for key, model in self._models.items() if key[1] != "meta"}

    @cached_property
    def _has_shapes(self) -> bool:
        """Return True if the answer's shape follows from shapes alone."""
        try:
            with Instead("meta"), torch.no_grad():
                self.reference(self.constants, *self.inputs(**self.constants))
        except Exception:  # as above
            return False
        return True

    def _instance(self, case: Case) -> _Instance:
        changed = {name: value for name, value in case.items() if value != self.constants[name]}
        key = describe_case(changed)
        if key not in self._instances:
            module = load_module(with_constants(self._text, changed, self.constants), self.path)
            with blame(self.path, "`get_init_inputs` raised"), on_device():
                init = module.get_init_inputs()
            self._instances[key] = _Instance(module.Model, module.get_inputs, list(init))
        return self._instances[key]

    def _given(self, instance: _Instance) -> Any:
        with blame(self.path, "`get_inputs` raised"), on_device():
            given = instance.get_inputs()
        return list(given) if isinstance(given, (list, tuple)) else [given]

    def _model(self, case: Case) -> nn.Module:
        sample = torch.empty(0, device="cuda")
        device = "meta" if sample.is_meta else sample.device.type  # on the fake GPU every tensor says `cuda`
        key = (describe_case(case), device)
        if key not in self._models:
            self._models[key] = self._build(self._instance(case), device)
        return self._models[key]

    def _build(self, instance: _Instance, device: str) -> nn.Module:
        try:
            with blame(self.path, "`Model` raised while it was built"):
                return build_model(instance.model, instance.init, self._seed, self._device)
        except WorkloadError:
            if device != "meta":
                raise
            with Instead("cpu"):  # its constructor reads values
                return self._build(instance, "cpu").to("meta")

    def _weights(self, case: Case) -> dict[str, Tensor]:
        """Return parameters and buffers without running statistics, which a forward changes but does not depend on."""
        model = self._model(case)
        changed = {
            f"{prefix}.{name}" if prefix else name
            for prefix, part in model.named_modules()
            if isinstance(part, _NormBase) and part.training
            for name, _ in part.named_buffers(recurse=False)
        }
        return {name: tensor.detach() for name, tensor in _state(model).items() if name not in changed}

    def _literal(self, value: Any, function: str) -> str:
        text = repr(value)
        try:
            ast.literal_eval(text)
        except (ValueError, SyntaxError):
            fix = "Return numbers, strings, lists, tuples and dicts of such."
            raise WorkloadError(
                f"`{function}` returns {text[:60]}, which is not a plain value", self.path, fix=fix
            ) from None
        return text


def _random_states(device: str) -> bytes:
    """Return the states of random numbers: of torch's, on a GPU too, of Python's, and of numpy's where it is imported.

    Those of two times differ where random numbers were drawn between them.
    """
    numpy = sys.modules.get("numpy")
    on_gpu = torch.cuda.get_rng_state().tolist() if device == "cuda" else None
    others = random.getstate(), numpy and numpy.random.get_state()
    return pickle.dumps((torch.get_rng_state().tolist(), on_gpu, others))


def _halvable(case: Case, stuck: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the sizes to halve next: all; or else one, largest first; or else two that may have to stay in
    proportion.
    """
    names = sorted((n for n in case if case[n] >= policy.PROBLEM_LEAST_SIZE), key=lambda n: -case[n])
    large = [n for n in names if case[n] >= policy.PROBLEM_LEAST_OF_MANY]
    tries = itertools.chain([tuple(large)], ((n,) for n in names), itertools.combinations(large, 2))
    yield from (tried for tried in tries if tried and tried not in stuck)


def _is_rounding(answer: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> bool:
    """Return True if some output is only rounding error: in float64 it has other values."""
    return any(_far(a, b) for a, b in zip(answer, exact, strict=True) if a.is_floating_point())


def _far(answer: Tensor, exact: Tensor) -> bool:
    """Return True if an answer is off by half of its own size, in the mean."""
    off = size = 0.0
    for part, wide in _parts(answer, exact):
        finite = torch.isfinite(wide) & torch.isfinite(part)
        off += float(torch.where(finite, part.double() - wide, 0.0).square().sum())
        size += float(torch.where(finite, wide.double(), 0.0).square().sum())
    return off > size / 4


def _parts(a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield two outputs in pieces: copies of whole ones might not fit in memory."""
    if a.shape != b.shape:
        yield a, b
    else:
        yield from zip(a.reshape(-1).split(_PART), b.reshape(-1).split(_PART), strict=True)


def _nbytes(leaves: Iterable[Any]) -> int:
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))


def _state(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())
