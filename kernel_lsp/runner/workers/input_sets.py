"""Keep sets of inputs by key, and their right answers, as far as memory allows.

Others are made again from their seed when they are needed.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.device.shared_buffer import as_argument, give_back, lay_out
from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.messages.oracle_answers import Made
from kernel_lsp.runner.spans import WORKER
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.workload import families
from kernel_lsp.workload.execute import blame
from kernel_lsp.workload.leaves import Leaves, own_elements, tensors
from kernel_lsp.workload.workload import as_outputs, describe_case, in_float64

RIGHT_ANSWER = "compute the right answer"
"""Name of the span in which a reference runs, in float64 where its operations support that."""


@dataclass(frozen=True, slots=True)
class InputSet:
    """One set of inputs.

    Attributes:
        case: its case.
        coarse: True where honest versions may be further off than usual; see `families.Family`.
        make: makes its leaves, the same ones each time.
        specs: places of its tensors in a buffer.
        nbytes: size of that buffer.
        values: key of the set whose leaves and right answer are its own too; empty if it has some of its own.
    """

    case: int
    coarse: bool
    make: Callable[[], Leaves]
    specs: tuple[TensorSpec, ...]
    nbytes: int
    values: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer for a set of inputs; `finite` if all its values are."""

    outputs: tuple[Tensor, ...]
    finite: bool


@dataclass(slots=True)
class CachedInputs:
    """One set of inputs in memory: its leaves, and the right answer once it was computed."""

    leaves: Leaves
    expected: Expected | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of inputs and answer together."""
        return sum(t.nbytes for t in (*tensors(self.leaves), *(self.expected.outputs if self.expected else ())))


class InputSets:
    """All sets of inputs of one oracle."""

    def __init__(self, draws: Draws, device: str, budget: float, checksum: Callable[[Tensor], int]) -> None:
        """Create an empty collection.

        Args:
            draws: makes leaves.
            device: `cuda` or `cpu`.
            budget: bytes that may be kept beside the set of inputs in use.
            checksum: tells whether leaves that are made again are the same ones.
        """
        self.draws, self._device, self._budget, self._checksum = draws, device, budget, checksum
        self._sets: dict[str, InputSet] = {}
        self._kept: OrderedDict[str, CachedInputs] = OrderedDict()  # least recently used first
        self._prints: dict[str, tuple[int, ...]] = {}  # checksums of leaves that were dropped
        self._finite: dict[str, bool] = {}  # True if the right answer is finite

    def __getitem__(self, key: str) -> InputSet:
        return self._sets[key]

    @property
    def kept(self) -> tuple[str, ...]:
        """Return the keys of the sets that are in memory, the most recently used last."""
        return tuple(self._kept)

    def prepare(self, key: str, case: int, family: str, seed: int) -> Made:
        """Make inputs under `key`.

        Raises:
            WorkloadError: the workload's `inputs` fails.
        """

        def make() -> Leaves:
            return self.draws.make(case, family, seed)

        leaves = self._made(make)
        specs, nbytes = lay_out_family(leaves, family)
        return self.keep(key, InputSet(case, families.FAMILIES[family].coarse, make, specs, nbytes), leaves)

    def lay_out_again(self, key: str, base: str, family: str) -> Made:
        """Store the inputs of `base` under `key`, in the memory layout of a family."""
        leaves = self.leaves(base)
        specs, nbytes = lay_out_family(leaves, family)
        self._sets[key] = replace(self._sets[base], specs=specs, nbytes=nbytes, values=base)
        return _made(self._sets[key], leaves)

    def keep(self, key: str, inputs: InputSet, leaves: Leaves) -> Made:
        """Store a set of inputs under `key`, replacing an earlier one; return its layout in a buffer."""
        self._sets[key] = inputs
        self._prints.pop(key, None)
        self._finite.pop(key, None)
        self._kept[key] = CachedInputs(leaves)
        self._forget_old(key)
        return _made(inputs, leaves)

    def remake(self, key: str, inputs: InputSet) -> Made:
        """Make a set of inputs by its own function, store it under `key`, and return its memory layout."""
        return self.keep(key, inputs, self._made(inputs.make))

    def drop(self, key: str) -> None:
        """Forget a set of inputs."""
        for held in (self._sets, self._kept, self._prints, self._finite):
            held.pop(key, None)

    def leaves(self, key: str) -> Leaves:
        """Return the leaves of a set of inputs; they are made again if they were dropped.

        Raises:
            WorkloadError: they came out otherwise than before.
        """
        key = self._sets[key].values or key
        if key not in self._kept:
            leaves = self._made(self._sets[key].make)
            if self._prints_of(leaves) != self._prints[key]:
                workload = self.draws.workload
                case = describe_case(workload.cases[self._sets[key].case])
                said = f"`inputs` makes other values under the same seed for case {case}, which is too large to be kept"
                raise WorkloadError(said, workload.path, fix="Draw them from torch's random numbers alone.")
            self._kept[key] = CachedInputs(leaves)
        self._forget_old(key)
        return self._kept[key].leaves

    def expected(self, key: str) -> Expected:
        """Return the right answer for a set of inputs: the reference's, in float64 where its operations support that.

        Raises:
            WorkloadError: the reference fails.
        """
        key = self._sets[key].values or key
        leaves, kept = self.leaves(key), self._kept[key]
        if kept.expected is None:
            outputs = self.reference(self._sets[key].case, leaves)
            if key not in self._finite:
                self._finite[key] = all(map(comparison.all_finite, outputs))
            kept.expected = Expected(outputs, self._finite[key])
            self.free_temporaries()
        return kept.expected

    def take_as_right(self, key: str, outputs: Sequence[Tensor]) -> None:
        """Take the baseline's outputs for the right answer, where nothing else says what is right.

        In another memory layout the inputs are the same, and so is the answer.
        """
        key = self._sets[key].values or key
        self.leaves(key)
        if self._kept[key].expected is None:
            answer = tuple(output.detach().clone().contiguous() for output in outputs)
            self._finite[key] = all(map(comparison.all_finite, answer))
            self._kept[key].expected = Expected(answer, self._finite[key])

    def finite(self, key: str) -> bool:
        """Return True if the right answer, computed before, is finite."""
        return self._finite[self._sets[key].values or key]

    def free_temporaries(self, *, whatever: bool = False) -> None:
        """Free cached memory as `give_back` does, because the workers under test share this GPU."""
        if self._device == "cuda":
            give_back(whatever=whatever)

    def _made(self, make: Callable[[], Leaves]) -> Leaves:
        with WORKER.span("draw inputs"):
            leaves = make()
        if sum(tensor.nbytes for tensor in tensors(leaves)) > policy.RELEASED_BYTES:
            self.free_temporaries()
        return leaves

    def _prints_of(self, leaves: Leaves) -> tuple[int, ...]:
        return tuple(self._checksum(tensor) for tensor in tensors(leaves))

    def _forget_old(self, key: str) -> None:
        """Keep what was made for `key`, and as much of the earlier sets as fits, the latest first."""
        self._kept.move_to_end(key)
        total = sum(kept.nbytes for kept in self._kept.values()) - self._kept[key].nbytes
        while total > self._budget and len(self._kept) > 1:
            old, kept = next(iter(self._kept.items()))
            if old not in self._prints:  # checksums need memory; only a set that has them can be made again
                self._prints[old] = self._prints_of(kept.leaves)
            del self._kept[old]
            total -= kept.nbytes

    def reference(self, case: int, leaves: Leaves) -> tuple[Tensor, ...]:
        """Return the answer of a case's reference for leaves, contiguous.

        Raises:
            WorkloadError: it fails.
        """
        workload = self.draws.workload
        constants = workload.cases[case]
        blaming = blame(workload.path, f"`reference` raised for case {describe_case(constants)}")
        with WORKER.span(RIGHT_ANSWER), self.draws.placing(), self.draws.gradients():
            returned = in_float64(workload.reference_on(constants), leaves, blaming)
        return tuple(t.detach().contiguous() for t in as_outputs(workload.path, returned, "reference"))


def _made(inputs: InputSet, leaves: Leaves) -> Made:
    """Return the layout of leaves in a buffer."""
    remaining = iter(inputs.specs)
    arguments = tuple(next(remaining) if isinstance(leaf, Tensor) else as_argument(leaf) for leaf in leaves)
    return Made(arguments, inputs.nbytes, sum(own_elements(t).nbytes for t in tensors(leaves)))


def lay_out_family(leaves: Leaves, family: str) -> tuple[tuple[TensorSpec, ...], int]:
    """Return the places of leaves in one buffer, in a family's memory layout, and the buffer's size in bytes."""
    layout = families.FAMILIES[family].layout
    forms = [(t.dtype, tuple(t.shape), t.stride()) for t in tensors(leaves)]
    return lay_out(
        forms,
        shifted=layout.shifted,
        strided=layout.strided,
        padded=layout.padded,
        misaligned=layout.misaligned,
    )
