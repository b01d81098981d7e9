"""Shows the profile of a kernel file: the lines that cost most, with what they execute and move, and wait for."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.check.pipelines import Pipeline, in_flight
from kernel_lsp.check.profile import FileProfile, KernelProfile, LineProfile
from kernel_lsp.report.units import count_text, percent_text, size_text, time_text

_COUNTS = ("Instructions", "Active lanes", "Traffic", "Loads", "Stores", "Banks")
_SAMPLES = ("Samples", "Waits for")
_PRICES = ("Price", "Without its")


def profile_view(profile: FileProfile) -> RenderableType:
    """Return each kernel's costly lines, and below them what the columns say."""
    parts: list[RenderableType] = []
    for kernel in profile.kernels:
        samples = f"  {kernel.samples:,} samples" if kernel.samples else ""
        time = f"  {time_text(kernel.us)}" if kernel.us else ""
        parts += [Text.assemble((kernel.kernel, "bold"), (samples + time, "dim")), _table(kernel)]
        parts += map(Text, pipeline_sentences(kernel.pipeline) if kernel.pipeline else ())
    if profile.problem:
        parts.append(Text(f"{profile.path}: nothing was counted: {profile.problem}.", "yellow"))
    parts += [Text(sentence, "dim") for sentence in sources_of(profile)]
    return Group(*parts)


def sources_of(profile: FileProfile) -> list[str]:
    """Return what each number of a profile is, who found it and on which case, in sentences."""
    said: list[str] = []
    if profile.cases:
        cases = "; ".join(profile.cases)
        said.append(
            f"Counted by the emulator on {cases} ({profile.arch}), no times: instructions of warps, traffic in sectors "
            "of global memory; loads and stores in sectors a request (ideal)."
        )
    where = f"{profile.device}, on {profile.gpu_case}"
    if any(kernel.samples for kernel in profile.kernels):
        said.append(
            f"Samples: where ncu found warps on {where}, each launch run once by itself; what most of them waited for."
        )
    elif profile.not_sampled:
        said.append(f"Not sampled on the GPU: {profile.not_sampled}.")
    if any(kernel.us for kernel in profile.kernels):
        said.append(
            f"Price: the share of a launch's time that was saved without that work of the line, on {where}; prices do "
            "not add up."
        )
    elif profile.not_priced:
        said.append(f"No line has a price: {profile.not_priced}.")
    return said


def pipeline_sentences(pipeline: Pipeline) -> list[str]:
    """Return the stages of a kernel's bulk copies, what they keep in flight, and the registers of its warps."""
    said = [
        f"Line {ring.line}: {count_text(ring.stages, 'stage')} of {size_text(ring.stage_bytes)} of shared memory."
        for ring in pipeline.rings
    ]
    if pipeline.refilled and pipeline.flight_bytes:
        said.append(f"Together {in_flight(pipeline)}.")
    given = [f"{share.registers} a thread from line {share.line} on" for share in pipeline.registers]
    return [*said, *([f"Registers of warps: {', of others '.join(given)}."] if given else [])]


def titles_of(kernel: KernelProfile) -> tuple[str, ...]:
    """Return the titles of the columns of `columns_of` for a kernel's lines."""
    return (
        *(_SAMPLES if kernel.samples else ()),
        *(_PRICES if kernel.us else ()),
        *(_COUNTS if kernel.launches else ()),
    )


def columns_of(kernel: KernelProfile, line: LineProfile) -> tuple[str, ...]:
    """Return what is known of a line, one text for each of `titles_of`; empty where there is nothing to say.

    Loads and stores are sectors of 32 bytes for each request of a warp, with the ideal number in brackets where it is
    another; banks are passes over shared memory for each request, where banks conflict.
    """
    return (
        *(_samples_of(line) if kernel.samples else ()),
        *((price_text(line), line.priced) if kernel.us else ()),
        *(_counts_of(line) if kernel.launches else ()),
    )


def _table(kernel: KernelProfile) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("Line", *titles_of(kernel), "Code"):
        is_code = title == "Code"  # which gives way where the terminal is narrow
        table.add_column(
            title, justify="left" if is_code or title in ("Waits for", "Without its") else "right", no_wrap=not is_code
        )
    shown = [line for line in kernel.lines if line.is_costly]
    for line in shown:
        code = Text(line.text, no_wrap=True, overflow="ellipsis")  # brackets are no markup
        where = str(line.line) if line.text else elsewhere(line)
        table.add_row(where, *columns_of(kernel, line), code)
    left = len(kernel.lines) - len(shown)
    if left:
        share = "sample_share" if kernel.samples else "instruction_share"
        rest = sum(getattr(line, share) for line in kernel.lines) - sum(getattr(line, share) for line in shown)
        blank = [""] * (len(titles_of(kernel)) - 1)
        table.add_row("", percent_text(rest), *blank, f"({left} other lines)")
    return table


def elsewhere(line: LineProfile) -> str:
    """Return the place of a line of another file, such as `tile.cuh:12`; `-` for instructions of no line."""
    return f"{Path(line.path).name}:{line.line}" if line.path else "-"


def price_text(line: LineProfile) -> str:
    """Return the share of the time that a line's dearest work costs; empty where that is unknown."""
    return "" if line.price is None else percent_text(max(line.price, 0.0))


def _samples_of(line: LineProfile) -> tuple[str, str]:
    waits = f"{line.waits_for}, {percent_text(line.wait_share)}" if line.waits_for else ""
    return percent_text(line.sample_share) if line.samples else "", waits


def _counts_of(line: LineProfile) -> tuple[str, ...]:
    counts = Counter(line.counts)
    shared = counts["shared_load_requests"] + counts["shared_store_requests"]
    conflicts = counts["shared_load_conflicts"] + counts["shared_store_conflicts"]
    passes = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    return (
        percent_text(line.instruction_share) if counts else "",
        percent_text(line.active_share) if line.active_share < 1 else "",
        percent_text(line.traffic_share) if line.traffic_share else "",
        _sectors(counts, "load"),
        _sectors(counts, "store"),
        f"{passes / shared:.1f}" if conflicts else "",
    )


def _sectors(counts: Mapping[str, int], what: str) -> str:
    requests = counts[f"{what}_requests"]
    if not requests:
        return ""
    sectors, ideal = (counts[f"{what}_{kind}"] / requests for kind in ("sectors", "ideal_sectors"))
    return f"{sectors:.1f}" if sectors - ideal < 0.05 else f"{sectors:.1f} ({ideal:.1f})"
