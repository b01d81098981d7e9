"""The record of a variant that wins on some cases and loses on others, and of the condition that separates them."""

from kernel_lsp.judge.record import Record


class SplitCase(Record):
    """One case.

    Attributes:
        case: its parameters, as text.
        side: `wins` or `loses` beyond doubt, or `either`.
        speedup: baseline over the variant, without a guard.
        interval: of `speedup`.
        path: `new` or `old`, by the condition; empty where there is none.
    """

    case: str
    side: str
    speedup: float
    interval: tuple[float, float]
    path: str = ""


class FreshCase(Record):
    """A size that CASES does not name, on which the guarded file was run beside the file as it stands.

    Attributes:
        case: its parameters, as text.
        path: `new` or `old`, by the condition.
        speedup: baseline over the guarded file; None where it was not timed.
        interval: of `speedup`.
        failed: why the condition is no good, from this case; empty if it is.
    """

    case: str
    path: str
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    failed: str = ""


class Split(Record):
    """The results of a variant by case, and what separates them.

    Attributes:
        variant: the label of the variant.
        digest: of its texts.
        predicate: the condition, as a person would say it; empty where there is none.
        cases: all timed ones, as measured without a guard.
        fresh: sizes on both sides of the border that were tried.
        note: which conditions were refused and why, and what could not be confirmed; may be empty.
    """

    variant: str
    digest: str
    predicate: str
    cases: tuple[SplitCase, ...]
    fresh: tuple[FreshCase, ...] = ()
    note: str = ""
