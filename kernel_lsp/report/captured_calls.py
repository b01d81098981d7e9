"""Words for what programs were seen to do with a kernel: one line of its share, and a table of the calls."""

from collections.abc import Iterator, Sequence

from kernel_lsp.report.units import percent_text, time_text
from kernel_lsp.workload.capture import Capture, CapturedCase, Described, leaves_of

BASIS = "Shares are of host time in the functions that launch kernels, not of GPU time."
_MOST_ROWS = 16


def of_kernel(captures: Sequence[Capture], kernel: str) -> dict[str, list[Capture]]:
    """Return the captures of functions that launch a kernel, by the name of the program."""
    found: dict[str, list[Capture]] = {}
    for capture in captures:
        if _plain(kernel) in map(_plain, capture.kernels):
            found.setdefault(capture.program, []).append(capture)
    return found


def usage_text(program: str, captures: Sequence[Capture]) -> str:
    """Return `38 % of train.py's host time, 4 shapes, 12,480 calls` for the captures of one program."""
    cases = [case for capture in captures for case in capture.cases]
    total = max(capture.program_seconds for capture in captures)
    spent = sum(case.seconds for case in cases)
    share = f"{percent_text(spent / total)} of {program}'s host time" if total else f"called by {program}"
    calls = sum(capture.calls for capture in captures)
    return f"{share}, {_counted(len(cases), 'shape')}, {_counted(calls, 'call')}"


def calls_page(program: str, captures: Sequence[Capture], text: str) -> str:
    """Return the calls of one program as Markdown: a line, what it rests on, and a table for each function.

    `text` is the kernel file's as it is now.
    """
    older = " They were captured from an earlier version of this file." if captures[0].text != text else ""
    parts = [f"{usage_text(program, captures)}. {BASIS}{older}"]
    return "\n\n".join([*parts, *map(_table, captures)])


def short(described: Described) -> str:
    """Return an argument in a few characters, such as `float32[3, 100]`."""
    if described["kind"] != "tensor":
        return str(described["value"])
    return f"{described['dtype']}[{', '.join(map(str, described['shape']))}]"


def share_text(capture: Capture, case: CapturedCase) -> str:
    """Return a case's share of its program's host time; empty where that is not known."""
    return f"{100 * case.seconds / capture.program_seconds:.1f} %" if capture.program_seconds else ""


def mean_text(case: CapturedCase) -> str:
    """Return the mean host time of a call."""
    return time_text(1e6 * case.seconds / max(case.count, 1))


def arguments_text(case: CapturedCase) -> str:
    """Return the arguments of a case, as in a call."""
    return ", ".join(f"{leaf.name}={short(leaf.described)}" for leaf in leaves_of(case))


def _table(capture: Capture) -> str:
    head = f"| calls | share | mean | arguments of `{capture.function}` |"
    return "\n".join([head, "| --: | --: | --: | --- |", *_rows(capture)])


def _rows(capture: Capture) -> Iterator[str]:
    for case in capture.cases[:_MOST_ROWS]:
        said = arguments_text(case).replace("|", "\\|")
        yield f"| {case.count:,} | {share_text(capture, case)} | {mean_text(case)} | {said} |"
    if (more := len(capture.cases) - _MOST_ROWS) > 0:
        yield f"| | | | and {_counted(more, 'other shape')} |"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _plain(kernel: str) -> str:
    return kernel.rpartition("::")[2]
