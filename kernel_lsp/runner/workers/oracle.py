"""The oracle: makes inputs and knows the right answers, and never runs a candidate.

It makes inputs, writes them into the memory of the worker under test, and compares what comes back with the reference
in float64. Expected values stay in this process.
"""

import contextlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.toolchain.emulated import STANDS_IN
from kernel_lsp.errors import NoRoomError
from kernel_lsp.runner.messages import oracle as messages
from kernel_lsp.runner.messages import oracle_answers as answers
from kernel_lsp.runner.messages.oracle import OracleRole
from kernel_lsp.runner.messages.oracle_answers import Compared, Made, MemoryRates, Varied
from kernel_lsp.runner.spans import MAKE_CONTEXT, WORKER
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws, placing
from kernel_lsp.runner.workers.input_sets import InputSets, lay_out_family
from kernel_lsp.runner.workers.output_errors import OutputErrors
from kernel_lsp.runner.workers.problems import extensions_left_out
from kernel_lsp.runner.workers.subject_memory import SubjectMemory
from kernel_lsp.runner.workers.variation import Variation
from kernel_lsp.source.modules import is_problem
from kernel_lsp.workload.leaves import Leaves, tensors
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.workload import Workload, describe_case

if TYPE_CHECKING:
    from kernel_lsp.workload.captured import CapturedFunction
    from kernel_lsp.workload.problem import CaseSelection, Problem

SALT_BITS = 62


@dataclass(frozen=True, slots=True)
class _Parts:
    """The state that exists once a workload is loaded."""

    draws: Draws
    inputs: InputSets
    errors: OutputErrors
    variation: Variation


def methods(device: str, factor: float, slack: float = 1.0, *, plain: bool = False) -> OracleRole:
    """Return the object that answers the oracle's requests.

    Args:
        device: `cuda` or `cpu`.
        factor: error allowed relative to the baseline's.
        slack: how many times over.
        plain: True where the baseline is PyTorch alone; see `error_bounds.relative_bounds`.
    """
    return Oracle(device, factor, slack, plain=plain)


class Oracle:
    """The state of one oracle process; every method answers a request of the parent."""

    def __init__(self, device: str, factor: float, slack: float = 1.0, *, plain: bool = False) -> None:
        self._device, self._factor, self._slack, self._plain = device, factor, slack, plain
        self.memory = SubjectMemory(device)
        self._loaded: _Parts | None = None
        self._salt = secrets.randbits(SALT_BITS)  # unknown elsewhere, so that no code can forge equal checksums
        self.checksum: Callable[[Tensor], int] = lambda tensor: comparison.fingerprint(_bytes(tensor), self._salt)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def load(self, request: messages.LoadWorkload, /) -> answers.LoadedWorkload:
        """Load the workload and describe it.

        Raises:
            WorkloadError: it cannot be executed, or lacks something.
            CannotJudgeError: no case of a problem fits this machine.
            NoRoomError: it does not fit beside other sessions.
        """
        found = self._first_look(request.probes) if self._device == "cuda" else None
        free, reserved = request.beside or (found, 0)
        chosen, takes = None, None
        with placing(self._device), extensions_left_out(request.text), self._seeming(request.text):
            with WORKER.span("execute the workload"):
                workload = load_workload(request.text, Path(request.path), self._device, request.seed)
            if (problem := workload.problem) is not None:
                chosen = _choose(problem, free)
                workload = replace(workload, cases=chosen.cases)
                if free is not None and found is not None:
                    takes = _most_needed(problem, chosen)
                    if request.beside:
                        require_room(takes, request.beside, found, problem.path)
                _try_out(problem, chosen)
        draws = Draws(workload, self._device)
        right = "" if workload.captured is None else self._settled(workload.captured, draws, request)
        allowed = budget(free, takes, reserved) if request.keep is None else request.keep
        inputs = InputSets(draws, self._device, allowed, self.checksum)
        errors = OutputErrors(inputs, self._factor, self._slack, plain=self._plain)
        if request.distance is not None:
            errors.measure = _fused_measure(request.distance)
        self._loaded = _Parts(draws, inputs, errors, Variation(inputs, self._device))
        inputs.free_temporaries(whatever=True)
        large = bool(takes and free and takes > policy.LARGE_CASE_MEMORY_SHARE * free)
        kept = int(min(allowed, policy.KEPT_DRAWS_SESSIONS * takes)) if takes else 0
        described = self._described(workload, chosen, large=large)
        rung = workload.captured.rung if workload.captured is not None else None
        return replace(described, right=right, rung=rung, free=free or 0, takes=(takes or 0) + kept)

    def _first_look(self, probes: Binary | None) -> int:
        """Make a context on the GPU, and return the bytes of memory that are free there."""
        with WORKER.span(MAKE_CONTEXT):
            if probes is not None:
                self._checksum_by(probes)
            return torch.cuda.mem_get_info()[0]

    def _settled(self, function: "CapturedFunction", draws: Draws, request: messages.LoadWorkload) -> str:
        """Find out by what a captured function is right, and say so."""
        from kernel_lsp.runner.workers import captured  # most workers never meet one

        captured.place(function, self._device, request.builds)
        return captured.settle(function, draws, request.rung)

    def _seeming(self, text: str) -> contextlib.AbstractContextManager[None]:
        """Return the context for importing a workload: it may read the properties of a GPU that does not exist."""
        if self._device == "cuda" or is_problem(text):
            return contextlib.nullcontext()
        return fake_gpu(STANDS_IN, values=True)

    def sizes(self) -> tuple[int, ...]:
        """Return the bytes of each case's inputs."""
        return self.draws.sizes()

    def other_sizes(self, request: messages.OtherSizes, /) -> tuple[str, ...]:
        """Add cases that the workload does not list, and name them."""
        if request.changes:
            return self.draws.add_changed(request.changes)
        return self.draws.add_sizes_near_the_largest() if request.near else self.draws.add_other_sizes()

    def prepare(self, request: messages.Prepare, /) -> Made:
        """Make inputs under a key."""
        made = self.inputs.prepare(request.key, request.case, request.family, request.seed)
        self.errors.forget(request.key)
        if request.like:
            self.errors.allow_as(request.key, request.like)
        return made

    def lay_out(self, request: messages.LayOut, /) -> Made:
        """Keep the same inputs in another memory layout."""
        self.errors.forget(request.key)
        return self.inputs.lay_out_again(request.key, request.base, request.family)

    def vary(self, request: messages.Vary, /) -> Varied:
        """Keep inputs with another value of one argument; the answer says why that is impossible, if it is."""
        self.errors.forget(request.key)
        return self._parts().variation.vary(request)

    def touch(self, request: messages.Touch, /) -> Made:
        """Keep inputs that differ from others in a few places; the bounds on errors are those of the others."""
        base = self.inputs[request.base]

        def make() -> Leaves:
            return self.draws.touch(base.case, self.inputs.leaves(request.base), request.seed)

        made = self.inputs.remake(request.key, replace(base, make=make))
        self.errors.forget(request.key)
        self.errors.allow_as(request.key, request.base)
        return made

    def rehearse(self, request: messages.RehearseReference, /) -> None:
        """Run the reference, if there is one, on a set of inputs, and get ready to compare outputs with its answers."""
        if self.draws.workload.has_reference:
            self.errors.rehearse(request.key)

    def attach(self, request: messages.Attach, /) -> None:
        """Open buffers of a worker under test."""
        self.memory.attach(request.subject, request.buffers, request.nbytes, request.handle)

    def detach(self, request: messages.Detach, /) -> None:
        """Close buffers of a worker; all of them if none is named."""
        self.memory.detach(request.subject, request.buffers)
        if not request.buffers:
            self.inputs.free_temporaries(whatever=True)  # what comes next may need it

    def fill(self, request: messages.Fill, /) -> None:
        """Write a set of inputs into buffers, with guard bytes around each."""
        specs, leaves = self.inputs[request.key].specs, self.inputs.leaves(request.key)
        self.memory.fill(request.subject, request.buffers, specs, tensors(leaves))

    def renew(self, request: messages.Renew, /) -> None:
        """Draw fresh inputs, and write the i-th draw into the i-th buffer of each place."""
        for number, seed in enumerate(request.seeds):
            leaves = self.draws.make(request.case, request.family, seed)
            specs, _ = lay_out_family(leaves, request.family)
            for place in request.places:
                self.memory.renew(place.subject, place.buffers[number], specs, tensors(leaves))
        self.memory.synchronize()

    def compare(self, request: messages.Compare, /) -> Compared:
        """Compare a worker's outputs with the right answers, and its inputs with their original values."""
        outputs = [self.memory.output(request.subject, spec) for spec in request.outputs]
        with WORKER.span("compare outputs", gpu=self._device == "cuda"):
            prints = tuple(map(self.checksum, outputs))
            if request.baseline:
                found = self.errors.of_baseline(request.key, request.outputs, outputs)
            else:
                found = self.errors.of_candidate(request.key, request.outputs, outputs, prints)
        answer = Compared(finite=self.inputs.finite(request.key))
        if request.untouched:
            answer = self._with_looks_at_inputs(answer, request)
        if isinstance(found, str):
            return replace(answer, mismatch=found)
        baseline = self.errors.allowance(request.key).errors
        return replace(answer, distances=found.distances, fingerprints=prints, baseline=baseline, blank=found.blank)

    def discriminate(self, request: messages.Discriminate, /) -> tuple[str, ...]:
        """Return the names of trivial answers that would pass as right."""
        return self.errors.passing(request.key, request.other, request.outputs, request.among)

    def rates(self) -> MemoryRates:
        """Measure how fast the GPU's memory is read, written and copied."""
        from kernel_lsp.runner.workers.bandwidth import measure_bandwidth

        with WORKER.span("read and write memory", gpu=True):
            measured = MemoryRates(**measure_bandwidth())
        self.inputs.free_temporaries(whatever=True)
        return measured

    def probe(self) -> bool:
        """Return True if this process's GPU still computes correctly."""
        return int(torch.ones(1024, device=self._device).sum()) == 1024

    @property
    def draws(self) -> Draws:
        """Return the maker of the loaded workload's inputs."""
        return self._parts().draws

    @property
    def inputs(self) -> InputSets:
        """Return the sets of inputs made so far."""
        return self._parts().inputs

    @property
    def errors(self) -> OutputErrors:
        """Return the object that measures errors of outputs."""
        return self._parts().errors

    def _parts(self) -> _Parts:
        assert self._loaded is not None, "the parent loads the workload first"
        return self._loaded

    def _checksum_by(self, probes: Binary) -> None:
        from kernel_lsp.device.driver import LoadedModule
        from kernel_lsp.runner.workers.fused import FusedChecksum

        torch.zeros(1, device="cuda")  # makes torch's context the current one
        checksum = FusedChecksum(LoadedModule(probes, {}), self._salt)
        self.checksum = lambda tensor: int(checksum(tensor))

    def _described(self, workload: Workload, chosen: "CaseSelection | None", *, large: bool) -> answers.LoadedWorkload:
        contract = workload.contract
        promises = {name: promise.said for name, promise in contract.promises.items()}
        return answers.LoadedWorkload(
            cases=tuple(describe_case(case) for case in workload.cases),
            arguments=workload.argument_names,
            decisive=chosen.decisive if chosen else tuple(range(len(workload.cases))),
            advisory=chosen.advisory if chosen else (),
            scaled=chosen.why if chosen else "",
            weights=workload.weights,
            renews_weights=workload.problem is not None and workload.problem.renews_weights,
            calls=workload.calls,
            large=large,
            nondeterministic=workload.nondeterministic,
            contract=answers.CallerContract(
                contract.contiguous,
                contract.aligned,
                contract.mutates,
                contract.finite,
                contract.listed_sizes,
                promises,
            ),
        )

    def _with_looks_at_inputs(self, answer: Compared, request: messages.Compare) -> Compared:
        """Add to an answer the inputs that were changed against the contract, and writes outside of any input."""
        workload, specs = self.draws.workload, self.inputs[request.key].specs
        leaves = self.inputs.leaves(request.key)
        names = [n for n, leaf in zip(workload.argument_names, leaves, strict=False) if isinstance(leaf, Tensor)]
        changed = tuple(
            name
            for name, spec, tensor in zip(names, specs, tensors(leaves), strict=True)
            if name not in workload.contract.mutates
            and not comparison.same_bits(self.memory.view(request.subject, request.buffer, spec), tensor)
        )
        trampled = self.memory.trampled(request.subject, request.buffer, specs, names)
        return replace(answer, changed_inputs=changed, trampled=trampled)


def _choose(problem: "Problem", free: int | None) -> "CaseSelection":
    """Return the cases of a problem that this machine runs, found by shapes alone on a GPU."""
    from kernel_lsp.workload.problem import choose_for_emulator, choose_for_gpu

    with WORKER.span("choose sizes that fit"):
        if free is None:
            return choose_for_emulator(problem)
        return choose_for_gpu(problem, int(_left(free)))


def _try_out(problem: "Problem", chosen: "CaseSelection") -> None:
    """Check that a problem has a right answer on the case that decides."""
    with WORKER.span("try out the model"):
        problem.check(chosen.cases[chosen.decisive[0]])


def _most_needed(problem: "Problem", chosen: "CaseSelection") -> int:
    from kernel_lsp.workload.problem import needed

    found = [problem.footprint(chosen.cases[case]) for case in chosen.decisive]
    return max((needed(footprint) for footprint in found if footprint is not None), default=0)


def require_room(takes: int, beside: tuple[int, int], found: int, path: Path) -> None:
    """Check that a problem whose judging takes so many bytes fits beside other sessions.

    Args:
        takes: found from shapes alone, before anything is allocated.
        beside: bytes that were free before the others, and those that they reserve.
        found: bytes that are free now.
        path: its file.

    Raises:
        NoRoomError: it does not.
    """
    free, reserved = beside
    if takes > _left(min(free - reserved, found)):
        raise NoRoomError("it does not fit into the GPU's memory beside other sessions", path)


def _left(free: float) -> float:
    """Return the bytes that judging may take of those that are free."""
    return policy.JUDGED_MEMORY_SHARE * free


def budget(free: int | None, takes: int | None, reserved: int) -> float:
    """Return the bytes of past inputs that may be kept.

    Judging takes `takes` of the `free` bytes, of which other sessions have `reserved` some.
    """
    if free is None:
        return math.inf
    kept = policy.KEPT_DRAWS_MEMORY_SHARE * (free - reserved)
    return min(kept, _left(free - reserved) - takes) if takes is not None else kept


def _fused_measure(distance: Binary) -> comparison.Measure:
    from kernel_lsp.device.driver import LoadedModule
    from kernel_lsp.runner.workers.fused import FusedMeasure

    return FusedMeasure(LoadedModule(distance, {}))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
