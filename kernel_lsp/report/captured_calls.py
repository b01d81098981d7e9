"""Words for what programs were seen to do with a kernel: one line of its share, and a table of the calls."""

from collections.abc import Iterator, Sequence

from kernel_lsp.report.units import count_text, percent_text, time_text
from kernel_lsp.workload.capture import Capture, CapturedCase, Described, leaves_of

BASIS = "Shares are of host time in the functions that launch kernels, not of GPU time."
GPU_BASIS = "Shares are of GPU time."
_MOST_ROWS = 16


def of_kernel(captures: Sequence[Capture], kernel: str) -> dict[str, list[Capture]]:
    """Return the captures of functions that launch a kernel, by the name of the program."""
    found: dict[str, list[Capture]] = {}
    for capture in captures:
        if _plain(kernel) in map(_plain, capture.kernels):
            found.setdefault(capture.program, []).append(capture)
    return found


def usage_text(program: str, captures: Sequence[Capture]) -> str:
    """Return `38 % of train.py's GPU time, 4 shapes, 12,480 calls` for the captures of one program; or host time."""
    cases = [case for capture in captures for case in capture.cases]
    on_gpu = _on_gpu(captures)
    shares = [capture.share(capture.cases) if on_gpu else capture.host_share(capture.cases) for capture in captures]
    part = sum(share or 0 for share in shares)
    share = (
        f"{percent_text(part)} of {program}'s {'GPU' if on_gpu else 'host'} time"
        if any(shares)
        else f"called by {program}"
    )
    calls = sum(capture.calls for capture in captures)
    return f"{share}, {count_text(len(cases), 'shape')}, {count_text(calls, 'call')}"


def basis_text(captures: Sequence[Capture]) -> str:
    """Return the sentence that says which time the shares of these captures are of."""
    return GPU_BASIS if _on_gpu(captures) else BASIS


def _on_gpu(captures: Sequence[Capture]) -> bool:
    return all(capture.on_gpu for capture in captures)


def calls_page(program: str, captures: Sequence[Capture], text: str) -> str:
    """Return the calls of one program as Markdown: a line, what it rests on, and a table for each function.

    `text` is the kernel file's as it is now.
    """
    older = " They were captured from an earlier version of this file." if captures[0].text != text else ""
    parts = [f"{usage_text(program, captures)}. {basis_text(captures)}{older}"]
    return "\n\n".join([*parts, *(_table(capture, on_gpu=_on_gpu(captures)) for capture in captures)])


def short(described: Described) -> str:
    """Return an argument in a few characters, such as `float32[3, 100]`."""
    if described["kind"] != "tensor":
        return str(described["value"])
    return f"{described['dtype']}[{', '.join(map(str, described['shape']))}]"


def share_text(capture: Capture, case: CapturedCase, *, on_gpu: bool = True) -> str:
    """Return a case's share of its program's GPU time, if known and `on_gpu`, else of its host time; or nothing."""
    share = capture.share([case]) if on_gpu else capture.host_share([case])
    return "" if share is None else f"{100 * share:.1f} %"


def mean_text(case: CapturedCase) -> str:
    """Return the mean host time of a call."""
    return time_text(1e6 * case.seconds / max(case.count, 1))


def arguments_text(case: CapturedCase) -> str:
    """Return the arguments of a case, as in a call."""
    return ", ".join(f"{leaf.name}={short(leaf.described)}" for leaf in leaves_of(case))


def _table(capture: Capture, *, on_gpu: bool) -> str:
    head = f"| calls | share | mean | arguments of `{capture.function}` |"
    return "\n".join([head, "| --: | --: | --: | --- |", *_rows(capture, on_gpu=on_gpu)])


def _rows(capture: Capture, *, on_gpu: bool) -> Iterator[str]:
    for case in capture.cases[:_MOST_ROWS]:
        said = arguments_text(case).replace("|", "\\|")
        yield f"| {case.count:,} | {share_text(capture, case, on_gpu=on_gpu)} | {mean_text(case)} | {said} |"
    if (more := len(capture.cases) - _MOST_ROWS) > 0:
        yield f"| | | | and {count_text(more, 'other shape')} |"


def _plain(kernel: str) -> str:
    return kernel.rpartition("::")[2]
