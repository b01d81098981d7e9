"""Turn the oracle's comparison of outputs into a ruling with a reason in words."""

from collections.abc import Sequence

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.ruling import Ruling, wrong
from kernel_lsp.judge.verdict import Mismatch
from kernel_lsp.runner.messages.oracle_answers import Compared, OutputDistance
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs, Trampled

OutputForm = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Type, shape and strides of an output."""


def where(harness: Harness, draw: Draw) -> str:
    """Return a description of the inputs for the user, such as `on case n=4 with shifted inputs`."""
    return f"on case {harness.cases[draw.case]}" + ("" if draw.is_plain else f" with {draw.family} inputs")


def ruling_on(
    harness: Harness, draw: Draw, compared: Compared, trampled: Sequence[Trampled] = (), what: str = ""
) -> Ruling | None:
    """Return the ruling on outputs that are wrong, or None if they are right.

    Args:
        harness: of the target.
        draw: the inputs.
        compared: outputs beside the truth.
        trampled: writes past the ends of tensors that the launch made.
        what: the launch that made the outputs, if it was no launch by itself.
    """
    place = where(harness, draw) + what
    if compared.mismatch:
        return wrong(f"{place} {compared.mismatch}")
    for number, found in enumerate(compared.distances):
        if found.index is not None:
            return wrong(f"{place} output {number} {how_wrong(found)}", _mismatch(harness, draw, number, found))
    for write in trampled:
        element = f"index {write.element}, " if write.side == "past" else ""
        return wrong(
            f"{place} it writes {write.side} the end of a tensor of shape {list(write.shape)} that `launch` made: "
            f"{write.count:,} bytes, the first at {element}{write.away} bytes {write.side} it"
        )
    for write in compared.trampled:
        return wrong(
            f"{place} it writes {write.side} the end of the input `{write.input}`: {write.count:,} bytes, the first "
            f"{write.away} bytes {write.side} it"
        )
    if compared.changed_inputs:
        return wrong(f"{place} it changes its input `{compared.changed_inputs[0]}`")
    return None


def how_wrong(found: OutputDistance) -> str:
    """Return how an output is wrong, as the end of a sentence; with figures if rounding may be the cause."""
    place, values = list(found.index or ()), f"{found.actual} where {found.expected} is right"
    if found.diffuse:
        off = f"{found.rms:.3g} units of rounding (root mean square) where {found.allowed:.3g} are allowed"
        return f"is inexact by {off}; most of all at index {place}: {values}"
    count = f"{found.wrong:,} of {found.total:,} elements are wrong"
    if found.max > policy.ROUNDING_FACTOR * found.allowed:
        return f"is wrong from index {place} on: {values}; {count}"
    return (
        f"is inexact from index {place} on: {values}; {count}, by up to {found.max:.3g} units of rounding where "
        f"{found.allowed:.3g} are allowed"
    )


def form_of(published: PublishedOutputs) -> list[OutputForm]:
    """Return type, shape and strides of each output."""
    return [(s.dtype, s.shape, stride) for s, stride in zip(published.outputs, published.strides, strict=True)]


def difference(wanted: Sequence[OutputForm], got: Sequence[OutputForm], *, strides: bool) -> str | None:
    """Return how outputs differ from the baseline's in form, or None; KernelBench problems do not compare `strides`."""
    if len(wanted) != len(got):
        return f"it returns {len(got)} outputs where the baseline returns {len(wanted)}"
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        for what, x, y in (("type", a[0], b[0]), ("shape", a[1], b[1]), ("strides", _steps(a), _steps(b))):
            if x != y and (strides or what != "strides"):
                shown = [list(v) if isinstance(v, tuple) else v for v in (x, y)]
                return f"output {number} has {what} {shown[1]} where the baseline's has {shown[0]}"
    return None


def moved(wanted: Sequence[str], got: Sequence[str]) -> str | None:
    """Return how outputs share memory differently from the baseline's, or None; memory of its own is no fault."""
    for number, (a, b) in enumerate(zip(wanted, got, strict=False)):
        if a == b or (not b and not a.endswith("inputs")):
            continue
        if a and b:
            return f"output {number} begins at {b}, where the baseline's begins at {a}"
        lies, place = ("does not lie", a) if a else ("lies", b)
        inside = "an input" if place.endswith("inputs") else place
        return f"output {number} {lies} in {inside}, where the baseline's {'does' if a else 'does not'}"
    return None


def _steps(output: OutputForm) -> tuple[int, ...]:
    """Return the strides of dimensions with more than one element; the others have no effect."""
    return tuple(step for extent, step in zip(output[1], output[2], strict=True) if extent > 1)


def _mismatch(harness: Harness, draw: Draw, number: int, found: OutputDistance) -> Mismatch:
    return Mismatch(
        case=harness.cases[draw.case],
        family=draw.family,
        output=number,
        index=found.index or (),
        expected=found.expected,
        actual=found.actual,
        count=found.wrong,
        total=found.total,
    )
