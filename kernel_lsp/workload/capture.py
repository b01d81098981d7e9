"""Captures as files: one for each function that launches kernels, with what it was given and how often.

A capture is data, a JSON document. `captured.py` makes a workload of it. Nothing here imports torch.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from kernel_lsp.errors import WorkloadError

SCHEMA = 1
FOLDER = Path(".kernel-lsp") / "captures"
"""Where captures lie below the folder that a program was captured in."""
SUFFIX = ".capture.json"
_SIGN = '{"kernel_lsp_capture":'
Described = Mapping[str, Any]
"""An argument as plain data, as `capture/inject/describe.py` writes it."""


@dataclass(frozen=True, slots=True)
class CapturedCase:
    """Calls of one kind.

    Attributes:
        arguments: of the first such call, by name.
        mutated: names of the leaves that it changed.
        returned: how many tensors it returned.
        count: how many such calls there were.
        seconds: host time within them, all together.
    """

    arguments: Mapping[str, Described]
    mutated: tuple[str, ...]
    returned: int
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Capture:
    """What was seen of one function that launches kernels.

    Attributes:
        program: the name of the program it was seen in.
        kernel: the function's file.
        function: its name there.
        kernels: names of the kernels that it launches.
        text: the file as it was.
        cases: those of most host time first.
        calls: of the function, those of no case too.
        dropped: how many calls are of no case, and why.
    """

    program: str
    kernel: str
    function: str
    kernels: tuple[str, ...]
    text: str
    cases: tuple[CapturedCase, ...]
    calls: int
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def file_name(self) -> str:
        """What its file is called: the same for every run of any program."""
        digest = hashlib.sha256(self.kernel.encode()).hexdigest()[:8]
        return f"{Path(self.kernel).stem}.{self.function}.{digest}{SUFFIX}"

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of the leaves that any case changes."""
        return tuple(dict.fromkeys(name for case in self.cases for name in case.mutated))


def is_capture(text: str) -> bool:
    """Whether a text is a capture's."""
    return text.startswith(_SIGN)


def capture_text(capture: Capture) -> str:
    """The text of a capture's file."""
    return json.dumps({"kernel_lsp_capture": SCHEMA, **asdict(capture)}, separators=(",", ":"), allow_nan=False) + "\n"


def read_capture(text: str, path: Path) -> Capture:
    """The capture in a text.

    Raises:
        WorkloadError: it is damaged, or of another version of this program.
    """
    cure = "Capture the program again, or delete the file."
    try:
        document = cast("dict[str, Any]", json.loads(text))
        if document.pop("kernel_lsp_capture") != SCHEMA:
            raise WorkloadError("this capture was written by another version of Kernel LSP", path, cure=cure)
        cases = tuple(_case(case) for case in document.pop("cases"))
        kernels = tuple(document.pop("kernels"))
        return Capture(cases=cases, kernels=kernels, **document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkloadError(f"this capture cannot be read: {error}", path, cure=cure) from None


def _case(document: dict[str, Any]) -> CapturedCase:
    mutated = tuple(document.pop("mutated"))
    return CapturedCase(mutated=mutated, **document)


def find_captures(kernel: Path, folders: Sequence[Path] = ()) -> Iterator[Path]:
    """The captures of a kernel file, by name: below `folders`, and those of any folder above it or the working one."""
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
    """One leaf of a call's arguments: what a workload's `inputs` makes one of."""

    name: str
    described: Described


def leaves_of(case: CapturedCase) -> tuple[Leaf, ...]:
    """The leaves of a case's arguments in order: tuples and lists are taken apart, constants are left out."""
    return tuple(leaf for name, described in case.arguments.items() for leaf in _leaves(name, described))


def _leaves(name: str, described: Described) -> Iterator[Leaf]:
    if described["kind"] in ("tuple", "list"):
        for number, item in enumerate(described["items"]):
            yield from _leaves(f"{name}_{number}", item)
    elif described["kind"] not in ("like", "triton"):
        yield Leaf(name, described)


def form_of(case: CapturedCase) -> str:
    """What must be alike for two cases to be of one workload: the names and nesting, and what is no leaf."""
    return json.dumps({name: _form(described) for name, described in case.arguments.items()})


def _form(described: Described) -> object:
    kind = described["kind"]
    if kind in ("tuple", "list"):
        return [kind, *(_form(item) for item in described["items"])]
    return dict(described) if kind in ("like", "triton") else "leaf"


def is_dense(described: Described) -> bool:
    """Whether a tensor is contiguous."""
    expected = 1
    for size, step in zip(reversed(described["shape"]), reversed(described["stride"]), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
