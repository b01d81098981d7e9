"""Reads and writes captures: a file for each function that launches kernels, with its arguments and counts.

A capture is data, a JSON document. `captured.py` makes it a workload. Nothing here imports torch.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from kernel_lsp.errors import WorkloadError

SCHEMA = 1
FOLDER = Path(".kernel-lsp") / "captures"
"""Folder of captures, below the one that a program was captured in."""
SUFFIX = ".capture.json"
_SIGN = '{"kernel_lsp_capture":'
LAUNCHER = "kernel_lsp_launch"
"""Name of the host function by which a kernel that was captured alone is launched as it was."""
GRID = "grid"
"""The argument of a Triton kernel's launch that is its grid, as `capture/inject/launches.py` calls it."""
CHOOSERS = ("Autotuner", "Heuristics")
"""Triton's classes around a kernel that choose some of its arguments."""
_HALVES = re.compile(r"\b(?:__)?(?:nv_)?(?:half|bfloat16)2?\b|\b__nv_bfloat162?\b")
Rung = Literal["float64", "wider", "itself"]
"""By what a captured function is right: itself in float64, in a wider type than its own, or as it stands."""
RUNGS: tuple[Rung, ...] = ("float64", "wider", "itself")
Described = Mapping[str, Any]
"""An argument as plain data, as `capture/inject/describe.py` writes it."""


@dataclass(frozen=True, slots=True)
class CapturedCase:
    """Calls of one kind.

    Attributes:
        arguments: arguments of the first such call, by name.
        mutated: names of the leaves that it changed.
        returned: number of tensors that it returned.
        count: number of such calls.
        seconds: host time within all of them.
    """

    arguments: Mapping[str, Described]
    mutated: tuple[str, ...]
    returned: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LaunchedAlone:
    """The launch of a kernel by a program whose functions are not seen, such as one in C++.

    Attributes:
        grid: number of blocks in x, y, z.
        block: number of threads in x, y, z.
        shared: bytes of dynamic shared memory.
        types: types of the kernel's parameters, as in C++.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """The record of one function that launches kernels, or of a kernel that was launched by a function not seen.

    Attributes:
        program: name of the recorded program.
        kernel: the function's file.
        function: its name there.
        kernels: names of the kernels that it launches.
        text: the file's text at that time.
        cases: most host time first.
        calls: number of calls, with those of no case.
        dropped: reason -> number of calls that are no case.
        program_seconds: host time of the program within all functions that launch kernels; 0 if it is not known.
        seconds: host time within all calls of this function; 0 if it is not known.
        gpu_seconds: GPU time of its kernels in the program; 0 if it was not recorded.
        program_gpu_seconds: GPU time of all of the program's kernels; 0 if it was not recorded.
        launched: how `function`, a kernel, was launched; None for a function that launches kernels itself.
        is_kernel: True if `function` is a Triton kernel that was launched by code that is no workload: with its grid
            and its options among its arguments.
    """

    program: str
    kernel: str
    function: str
    kernels: tuple[str, ...]
    text: str
    cases: tuple[CapturedCase, ...]
    calls: int
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    program_seconds: float = 0.0
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    program_gpu_seconds: float = 0.0
    launched: LaunchedAlone | None = None
    is_kernel: bool = False

    @property
    def called(self) -> str:
        """Return the name of the function of `reference_text` that is called."""
        return self.function if self.launched is None else LAUNCHER

    @property
    def reference_text(self) -> str:
        """Return `text`; for a kernel with a host function after it that launches it as the program did."""
        if (made := self.launched) is None:
            return self.text
        names = [f"a{number}" for number in range(len(made.types))]
        given = ", ".join(f"{kind} {name}" for kind, name in zip(made.types, names, strict=True))
        grid, block = (f"dim3({', '.join(map(str, sizes))})" for sizes in (made.grid, made.block))
        shared, room = str(made.shared), ""
        if made.shared:  # in float64 these bytes are twice as many, or four times
            shared += " * (sizeof(float) / 4)" * (2 if _HALVES.search(self.text) else 1)
            room = f"cudaFuncSetAttribute({self.function}, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared}); "
        launch = f"{self.function}<<<{grid}, {block}, {shared}>>>({', '.join(names)});"
        return f"{self.text}\nvoid {LAUNCHER}({given}) {{ {room}{launch} }}\n"

    @property
    def on_gpu(self) -> bool:
        """Return True if `share` is of GPU time."""
        return bool(self.gpu_seconds and self.program_gpu_seconds and self.seconds)

    def share(self, cases: Sequence[CapturedCase]) -> float | None:
        """Return the part of the program's time, 0 to 1, that some cases of this function took; None if not known.

        It is of GPU time where that was recorded, for the function as a whole; cases then part it as they part the
        host time. Else it is of host time within functions that launch kernels.
        """
        if not self.on_gpu:
            return self.host_share(cases)
        spent = sum(case.seconds for case in cases)
        return self.gpu_seconds / self.program_gpu_seconds * min(spent / self.seconds, 1.0)

    def host_share(self, cases: Sequence[CapturedCase]) -> float | None:
        """Return the part of the program's host time within functions that launch kernels; None if not known."""
        return sum(case.seconds for case in cases) / self.program_seconds if self.program_seconds else None

    @property
    def file_name(self) -> str:
        """Return its file's name: the same for every run of any program."""
        digest = hashlib.sha256(self.kernel.encode()).hexdigest()[:8]
        return f"{Path(self.kernel).stem}.{self.plain_name}.{digest}{SUFFIX}"

    @property
    def plain_name(self) -> str:
        """Return the function's name as part of a file's, without what template arguments and namespaces bring."""
        return re.sub(r"\W+", "_", self.function)

    @property
    def mutated(self) -> tuple[str, ...]:
        """Return the names of the leaves that any case changes."""
        return tuple(dict.fromkeys(name for case in self.cases for name in case.mutated))


def is_capture(text: str) -> bool:
    """Return True if a text is that of a capture."""
    return text.startswith(_SIGN)


def capture_text(capture: Capture) -> str:
    """Return the text of a capture's file."""
    return json.dumps({"kernel_lsp_capture": SCHEMA, **asdict(capture)}, separators=(",", ":"), allow_nan=False) + "\n"


def read_capture(text: str, path: Path) -> Capture:
    """Return the capture in a text.

    Raises:
        WorkloadError: it is damaged, or of another version of this program.
    """
    fix = "Capture the program again, or delete the file."
    try:
        document = cast("dict[str, Any]", json.loads(text))
        if document.pop("kernel_lsp_capture") != SCHEMA:
            raise WorkloadError("this capture was written by another version of Kernel LSP", path, fix=fix)
        cases = tuple(_case(case) for case in document.pop("cases"))
        kernels = tuple(document.pop("kernels"))
        launched = document.pop("launched", None)
        alone = None if launched is None else LaunchedAlone(**{k: _whole(v) for k, v in launched.items()})
        return Capture(cases=cases, kernels=kernels, launched=alone, **document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkloadError(f"this capture cannot be read: {error}", path, fix=fix) from None


def _whole(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _case(document: dict[str, Any]) -> CapturedCase:
    mutated = tuple(document.pop("mutated"))
    return CapturedCase(mutated=mutated, **document)


def find_captures(kernel: Path, folders: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield the captures of a kernel file by name: below `folders`, the folders above it, or the working folder."""
    resolved = kernel.resolve()
    name = f"{resolved.stem}.*.{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}{SUFFIX}"
    places = [above / FOLDER for above in (*resolved.parents, *_working_folders())]
    for folder in dict.fromkeys([*folders, *places]):
        yield from sorted(folder.glob(name))


def _working_folders() -> Iterator[Path]:
    try:
        here = Path(os.getcwd())  # noqa: PTH109 - it may have been deleted
    except OSError:
        return
    yield from (here, *here.parents)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf of a call's arguments; a workload's `inputs` makes one value for each."""

    name: str
    described: Described


def leaves_of(case: CapturedCase) -> tuple[Leaf, ...]:
    """Return the leaves of a case's arguments in order: those within tuples and lists too, without constants."""
    return tuple(leaf for name, described in case.arguments.items() for leaf in _leaves(name, described))


def _leaves(name: str, described: Described) -> Iterator[Leaf]:
    if described["kind"] in ("tuple", "list"):
        for number, item in enumerate(described["items"]):
            yield from _leaves(f"{name}_{number}", item)
    elif described["kind"] not in ("like", "triton"):
        yield Leaf(name, described)


def form_of(case: CapturedCase) -> str:
    """Return the key that cases of one workload share: names, nesting, and constants."""
    return json.dumps({name: _form(described) for name, described in case.arguments.items()})


def _form(described: Described) -> object:
    kind = described["kind"]
    if kind in ("tuple", "list"):
        return [kind, *(_form(item) for item in described["items"])]
    return dict(described) if kind in ("like", "triton") else "leaf"


def is_unset(described: Described) -> bool:
    """Return True for a tensor of NaNs alone, as unwritten memory is on the emulator."""
    return described.get("nan") == 1.0


def is_dense(described: Described) -> bool:
    """Return True if a tensor is contiguous."""
    expected = 1
    for size, step in zip(reversed(described["shape"]), reversed(described["stride"]), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
