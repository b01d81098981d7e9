"""The contract of a workload: guarantees about inputs, so that the judge tests nothing that never occurs."""

import difflib
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from kernel_lsp.errors import WorkloadError


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee about every value of one input.

    Attributes:
        fixed: it is always as `inputs` makes it; the judge must not change it.
        lower_triangular, upper_triangular: zero above, or below, the diagonal of its last two dimensions.
        symmetric: in its last two dimensions.
        sorted: it ascends along its last dimension.
        least, most: the range of its values, both ends included; None for an open end.
    """

    fixed: bool = False
    lower_triangular: bool = False
    upper_triangular: bool = False
    symmetric: bool = False
    sorted: bool = False
    least: float | None = None
    most: float | None = None

    @property
    def said(self) -> str:
        """Return the promise as the rest of a sentence after "it is"; empty if nothing is promised."""
        words = [
            "fixed" if self.fixed else "",
            "lower triangular" if self.lower_triangular else "",
            "upper triangular" if self.upper_triangular else "",
            "symmetric" if self.symmetric else "",
            "sorted" if self.sorted else "",
            self._range,
        ]
        return ", ".join(filter(None, words))

    @property
    def _range(self) -> str:
        if self.least is not None and self.most is not None:
            return f"within {self.least:g} and {self.most:g}"
        if self.least is not None:
            return f"at least {self.least:g}"
        return f"at most {self.most:g}" if self.most is not None else ""


NOTHING = Promise()
_PROPERTIES = ("fixed", "lower_triangular", "upper_triangular", "symmetric", "sorted")
_GUIDE = "`kernel-lsp explain workload` says what each means."
_KEYS = ("contiguous", "aligned", "finite", "listed_sizes", "multiples", "mutates", *_PROPERTIES, "range")


@dataclass(frozen=True, slots=True)
class Contract:
    """The guarantees of the kernel's callers.

    Attributes:
        contiguous: tensors are contiguous.
        aligned: tensors start at a multiple of this many bytes.
        mutates: names of inputs that the launch changes in place.
        finite: no NaN and no infinity in the inputs.
        listed_sizes: callers use the cases that the workload lists, and no others.
        multiples: by entry of a case, of what its value is always a multiple.
        promises: by input, what holds of its values; an input of which nothing is said is not among them.
    """

    contiguous: bool = False
    aligned: int = 0
    mutates: tuple[str, ...] = ()
    finite: bool = False
    listed_sizes: bool = False
    multiples: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    promises: Mapping[str, Promise] = field(default_factory=lambda: MappingProxyType({}))

    def promise(self, name: str) -> Promise:
        """Return the promise about an input's values."""
        return self.promises.get(name, NOTHING)


def read_contract(declared: object, path: Path, names: tuple[str, ...], cases: Sequence[Mapping[str, Any]]) -> Contract:
    """Return the contract that a workload declares.

    Args:
        declared: its `CONTRACT`.
        path: its file.
        names: of the inputs, as `reference` takes them.
        cases: its `CASES`.

    Raises:
        WorkloadError: a key is unknown, a value is of the wrong kind, no input or case has the name, or a case breaks
            what is promised.
    """
    reader = _Reader(path, names)
    if not isinstance(declared, dict):
        raise reader.wrong("must be a dict", f"Its keys are {', '.join(_KEYS)}.")
    fields = cast("dict[str, Any]", declared)
    for key in fields:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            guess = f"Did you mean `{near[0]}`? " if near else ""
            raise reader.wrong(f"has no `{key}`: keys are among {', '.join(_KEYS)}", f"{guess}{_GUIDE}")
    aligned = fields.get("aligned", 0)
    if not isinstance(aligned, int) or aligned < 0:
        raise reader.wrong("'s `aligned` must be a number of bytes", "For example `aligned=16`.")
    return Contract(
        bool(fields.get("contiguous", False)),
        aligned,
        reader.names(fields, "mutates"),
        bool(fields.get("finite", False)),
        bool(fields.get("listed_sizes", False)),
        MappingProxyType(reader.multiples(fields, cases)),
        MappingProxyType(_promises(fields, reader)),
    )


def _promises(fields: Mapping[str, Any], reader: "_Reader") -> dict[str, Promise]:
    found: dict[str, Promise] = {}
    for key in _PROPERTIES:
        for name in reader.names(fields, key):
            found[name] = replace(found.get(name, NOTHING), **{key: True})
    for name, (least, most) in reader.ranges(fields).items():
        found[name] = replace(found.get(name, NOTHING), least=least, most=most)
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    inputs: tuple[str, ...]

    def wrong(self, what: str, fix: str) -> WorkloadError:
        lines = enumerate(linecache.getlines(str(self.path)), 1)
        line = next((number for number, text in lines if text.startswith("CONTRACT")), None)
        return WorkloadError(f"CONTRACT{what}" if what[0] == "'" else f"CONTRACT {what}", self.path, line, fix)

    def names(self, fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
        said = fields.get(key, ())
        if not isinstance(said, (list, tuple)):
            example = f'`{key}=("{self.inputs[0] if self.inputs else "x"}",)`'
            raise self.wrong(f"'s `{key}` must be a list of names of inputs", f"For example {example}.")
        return tuple(self._known(key, name) for name in cast("list[object]", said))

    def ranges(self, fields: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
        said = fields.get("range", {})
        fix = 'For example `range={"p": (0, 1), "v": (0, None)}`: both ends are within it, None is no end.'
        if not isinstance(said, dict):
            raise self.wrong("'s `range` must be a dict of inputs with their lowest and highest values", fix)
        found: dict[str, tuple[float | None, float | None]] = {}
        for name, ends in cast("dict[object, object]", said).items():
            match ends:
                case (int() | float() | None as least, int() | float() | None as most) if _in_order(least, most):
                    found[self._known("range", name)] = (least, most)
                case _:
                    raise self.wrong(f"'s `range` of `{name}` is {ends!r}, not a lowest and a highest value", fix)
        return found

    def multiples(self, fields: Mapping[str, Any], cases: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        said = fields.get("multiples", {})
        entries = sorted({name for case in cases for name, value in case.items() if type(value) is int})
        fix = f'For example `multiples={{"{entries[0] if entries else "n"}": 4}}`.'
        if not isinstance(said, dict):
            raise self.wrong("'s `multiples` must be a dict of entries of CASES and whole numbers", fix)
        found: dict[str, int] = {}
        for name, unit in cast("dict[str, object]", said).items():
            if name not in entries:
                raise self.wrong(
                    f"'s `multiples` names `{name}`, which no case has as a whole number",
                    f"They have {', '.join(entries) or 'none'}.",
                )
            if type(unit) is not int or unit < 1:
                raise self.wrong(f"'s `multiples` of `{name}` is {unit!r}, not a whole number from 1 on", fix)
            for value in (case[name] for case in cases if name in case):
                if value % unit:
                    raise self.wrong(
                        f"says that `{name}` is a multiple of {unit}, but a case has {value}", "Fix CASES or CONTRACT."
                    )
            found[name] = unit
        return found

    def _known(self, key: str, name: object) -> str:
        if name in self.inputs:
            return str(name)
        near = difflib.get_close_matches(str(name), self.inputs, 1)
        guess = f"Did you mean `{near[0]}`? " if near else ""
        raise self.wrong(
            f"'s `{key}` names `{name}`, which `reference` does not take", f"{guess}It takes {', '.join(self.inputs)}."
        )


def _in_order(least: float | None, most: float | None) -> bool:
    return (least is not None or most is not None) and (least is None or most is None or least <= most)
