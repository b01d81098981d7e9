"""One verdict as a card: the answer first, then what it rests on, then how to repeat it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kernel_lsp.judge.verdict import (
    CaseTiming,
    CheckStatus,
    ErrorFigures,
    Evidence,
    Mismatch,
    Outcome,
    SustainedRun,
    Trace,
    Verdict,
)
from kernel_lsp.report.compile import kernel_table
from kernel_lsp.report.extensions import extension_text
from kernel_lsp.report.sources import repeat_commands
from kernel_lsp.report.units import (
    bandwidth_text,
    energy_text,
    interval_text,
    percent_text,
    seconds_text,
    speedup_text,
    time_text,
)
from kernel_lsp.report.view import (
    KERNEL_COLUMNS,
    Tone,
    change_text,
    kernel_rows,
    mismatch_facts,
    opcode_rows,
    share_text,
    tone_of,
)

WIDE = 110
"""Columns from which the card also shows bandwidths and how each case was timed."""

LOG_LINES = 20
"""How much of a failed build's log is shown; the whole of it is in the JSON."""

OPCODES = 10
"""How many kinds of instructions are named; all are in the JSON."""

_STYLES = {Tone.GOOD: "bold green", Tone.PLAIN: "bold cyan", Tone.DOUBT: "bold yellow", Tone.BAD: "bold red"}


def verdict_style(outcome: Outcome) -> str:
    """The style in which an outcome is written."""
    return _STYLES[tone_of(outcome)]


_RAN = 4  # operations shown of each case


@dataclass(frozen=True)
class VerdictCard:
    """A rich renderable; fits itself to the width it is given, but for commands: print it with `crop=False`.

    Attributes:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
    """

    verdict: Verdict
    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The parts of the card that have something to say, one empty line between them."""
        wide = options.max_width >= WIDE
        evidence = self.verdict.evidence
        parts = (
            verdict_head(self.verdict, self.name, evidence.kernel_path),
            _cases(self.verdict.cases, wide=wide),
            _sustained(evidence.sustained),
            _mismatch(evidence.mismatch),
            _build_log(self.verdict),
            _errors(evidence.errors),
            _resources(evidence),
            _opcodes(evidence),
            _ran(evidence.traces),
            _checks(evidence),
            _circumstances(self.verdict, options.max_width),
            _repeat(evidence, self.name),
        )
        for part in parts:
            if part is not None:
                yield part
                yield Text()


def verdict_head(verdict: Verdict, name: str, title: str) -> RenderableType:
    """The answer and its reason; `name` is the id by which `kernel-lsp report` finds the verdict again."""
    line = Text(f" {verdict.verdict.value} ", verdict_style(verdict.verdict) + " reverse")
    if verdict.speedup is not None:
        line.append(" ").append(speedup_text(verdict.speedup), "bold not reverse")
        if verdict.interval is not None:
            line.append(f" (95 % CI {interval_text(verdict.interval)})", "not reverse")
    evidence = verdict.evidence
    device = evidence.device.name if evidence.device else "not timed"
    about = Text(" · ".join((evidence.candidate_label, evidence.candidate_origin, device, name)), "dim")
    return Group(Text(title, "bold"), line, Text(verdict.reason), about)


def _cases(cases: tuple[CaseTiming, ...], *, wide: bool) -> Table | None:
    if not cases:
        return None
    table = _table("Case")
    columns: list[tuple[str, Callable[[CaseTiming], str]]] = [
        ("Baseline", lambda case: time_text(case.baseline_us)),
        ("Candidate", lambda case: time_text(case.candidate_us)),
        ("Speedup", lambda case: speedup_text(case.speedup)),
        ("95 % CI", lambda case: interval_text(case.interval)),
    ]
    if any(case.roofline_share is not None for case in cases):
        columns.append(
            (
                "Roofline",
                lambda case: change_text(share_text(case.baseline_roofline_share), share_text(case.roofline_share)),
            )
        )
    if wide:
        columns.append(("Bandwidth", lambda case: bandwidth_text(case.bytes_moved, case.candidate_us)))
        columns.append(
            ("Blocks", lambda case: f"{len(case.blocks) - case.confirmation_blocks}+{case.confirmation_blocks}")
        )
        columns.append(("Mode", lambda case: case.mode))
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for case in cases:
        table.add_row(Text(case.case), *(show(case) for _, show in columns))
    return table


def _sustained(run: SustainedRun | None) -> RenderableType | None:
    if run is None:
        return None
    facts = [
        ("case", f"{run.case}, {seconds_text(run.seconds)} each without a pause"),
        ("time", change_text(time_text(run.baseline_us), time_text(run.candidate_us))),
        ("speedup", f"{speedup_text(run.speedup)} (95 % CI {interval_text(run.interval)})"),
    ]
    if run.baseline_mj is not None and run.candidate_mj is not None:
        facts.append(("energy", change_text(energy_text(run.baseline_mj), energy_text(run.candidate_mj)) + " a launch"))
    if run.baseline_w is not None and run.candidate_w is not None:
        facts.append(
            ("power", change_text(f"{run.baseline_w:.0f}", f"{run.candidate_w:.0f}") + f" of {run.limit_w:.0f} W")
        )
    if run.baseline_clock_mhz is not None and run.candidate_clock_mhz is not None:
        clocks = change_text(f"{run.baseline_clock_mhz:,.0f}", f"{run.candidate_clock_mhz:,.0f}")
        facts.append(("SM clock", f"{clocks} MHz"))
    facts.append(("slowed by", ", ".join(run.throttle)))
    return Group(Text("Under a steady load", "bold"), _facts(*facts))


def _mismatch(mismatch: Mismatch | None) -> RenderableType | None:
    if mismatch is None:
        return None
    return Group(Text("First wrong element", "bold"), _facts(*mismatch_facts(mismatch).items()))


def _build_log(verdict: Verdict) -> RenderableType | None:
    if verdict.verdict is not Outcome.BUILD_FAILED or not verdict.evidence.build_log.strip():
        return None
    lines = verdict.evidence.build_log.strip().splitlines()
    more = [f"... and {len(lines) - LOG_LINES} more lines (--json has them all)"] if len(lines) > LOG_LINES else []
    return Padding(Text("\n".join(lines[:LOG_LINES] + more), "dim"), (0, 0, 0, 2))


def _errors(errors: tuple[ErrorFigures, ...]) -> Table | None:
    """The worst input family of each case, by what the candidate makes of the baseline's error."""
    worst: dict[str, ErrorFigures] = {}
    for figures in errors:
        if figures.case not in worst or _growth(figures) > _growth(worst[figures.case]):
            worst[figures.case] = figures
    if not worst:
        return None
    table = _table("Error vs float64, in eps")
    table.add_column("Worst input")
    for title in ("Max", "RMS"):
        table.add_column(title, justify="right", no_wrap=True)
    for case, figures in worst.items():
        table.add_row(
            Text(case),
            Text(figures.family),
            change_text(f"{figures.baseline_max:.3g}", f"{figures.candidate_max:.3g}"),
            change_text(f"{figures.baseline_rms:.2g}", f"{figures.candidate_rms:.2g}"),
        )
    return table


def _growth(figures: ErrorFigures) -> float:
    return figures.candidate_max / figures.baseline_max if figures.baseline_max > 0 else figures.candidate_max


def _resources(evidence: Evidence) -> RenderableType | None:
    if not evidence.candidate_resources:
        return None
    kernels = [(name, [cells[:-1]]) for name, cells in kernel_rows(evidence)]  # there is no room for what limits it
    return Group(Text("Kernels", "bold"), kernel_table(list(KERNEL_COLUMNS[:-1]), kernels))


def _opcodes(evidence: Evidence) -> RenderableType | None:
    """The kinds of instructions whose number has changed most."""
    changed = opcode_rows(evidence)
    if not changed:
        return None
    shown = [f"{kind} {after - before:+}" for kind, before, after in changed[:OPCODES]]
    shown += [f"and {len(changed) - OPCODES} more"] if len(changed) > OPCODES else []
    return Group(Text("Instructions", "bold"), Padding(Text(", ".join(shown)), (0, 0, 0, 2)))


def _ran(traces: Sequence[Trace]) -> RenderableType | None:
    """What a launch of each case puts on the GPU, the longest first; what was timed goes before a launch by itself."""
    latest = {trace.case: trace for trace in sorted(traces, key=lambda trace: trace.timed)}
    if not latest:
        return None
    grid = _grid()
    for trace in latest.values():
        share = "nothing computes" if trace.own_share is None else f"own kernels {percent_text(trace.own_share)}"
        ran = Text()
        for group in trace.groups[:_RAN]:
            name, _, _ = group.name.removeprefix("void ").partition("(")
            ran.append(f"{name[:60]} ", "" if group.own else "yellow").append(
                f"{time_text(group.us / trace.launches)}  ", "dim"
            )
        if trace.never_launched:
            ran.append(f"never launched: {', '.join(trace.never_launched)}", "yellow")
        grid.add_row(Text(trace.case), Text(share), ran)
    return Group(Text("What ran", "bold"), grid)


def _checks(evidence: Evidence) -> RenderableType | None:
    if not evidence.checks:
        return None
    passed = [check.name for check in evidence.checks if check.status is CheckStatus.PASSED]
    grid = _grid()
    if passed:
        grid.add_row(Text("✓", "green"), Text(f"{len(passed)} passed"), Text(_listed(passed), "dim"))
    for mark, style, status in (("✗", "bold red", CheckStatus.FAILED), ("-", "yellow", CheckStatus.SKIPPED)):
        alike: dict[str, list[str]] = {}
        for check in evidence.checks:
            if check.status is status:
                case = check.case if check.case and check.case not in check.detail else None
                alike.setdefault(" · ".join(part for part in (case, check.detail) if part), []).append(check.name)
        for about, names in alike.items():
            grid.add_row(Text(mark, style), Text(status.value), Text.assemble(_listed(names), (f"  {about}", "dim")))
    return Group(Text("Checks", "bold"), grid)


def _listed(names: Sequence[str]) -> str:
    """Names of checks, each once; `inputs: normal, inputs: large` is `inputs: normal, large`."""
    kinds: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        kind, colon, what = name.partition(": ")
        kinds.setdefault(kind + colon if colon else "", []).append(what or name)
    return "; ".join(kind + ", ".join(whats) for kind, whats in kinds.items())


def _circumstances(verdict: Verdict, width: int) -> RenderableType:
    evidence = verdict.evidence
    device = evidence.device
    measured: list[str] = []
    if device is not None:
        if device.sm_clock_mhz is not None:
            low, high = device.sm_clock_mhz
            measured.append(
                f"SM clock {low:,.0f}-{high:,.0f} MHz" if round(low) != round(high) else f"SM clock {low:,.0f} MHz"
            )
        if device.power_w is not None:
            measured.append(f"{device.power_w:.0f} W")
        if device.temperature_c is not None:
            measured.append(f"{device.temperature_c} °C")
        for what, rate in (("copies", device.copy_bandwidth_gbs), ("reads", device.read_bandwidth_gbs)):
            if rate is not None:
                measured.append(f"memory {what} {rate:,.0f} GB/s")
        if device.throttle:
            measured.append(f"slowed by {', '.join(device.throttle)}")
        if device.shared:
            measured.append(f"shared: others keep it {device.others_busy_percent or 0} % busy")
        for server in device.model_servers:
            use = "" if server.busy_percent is None else f", {server.busy_percent} % busy"
            measured.append(f"model server {server.name} {server.how}{use}")
    if evidence.discarded_blocks:
        count = evidence.discarded_blocks
        measured.append(f"{count} block{'s' if count > 1 else ''} discarded")
    total = verdict.seconds.get("total")
    stages = [
        f"{stage} {seconds_text(spent)}"
        for stage, spent in verdict.seconds.items()
        if stage != "total" and spent > 1e-3
    ]
    facts = {
        "measured": measured,
        "built": [extension_text(extension) for extension in evidence.extensions]
        or [f"for {evidence.build_arch}" for _ in evidence.build_arch[:1]],
        "versions": [f"{tool} {version}" for tool, version in evidence.versions.items()],
        "settings": [f"{key} {_setting(value)}" for key, value in evidence.settings.items()],
        "confined": list(evidence.protections),
        "faults": [f"Xid {number}" for number in evidence.xids],
        "seed": [] if evidence.seed is None else [str(evidence.seed)],
        "seconds": ([seconds_text(total)] if total is not None else []) + stages,
    }
    room = width - max(map(len, facts)) - 2
    return _facts(*((name, _filled(items, room)) for name, items in facts.items()))


def _filled(items: Sequence[str], width: int) -> str:
    """Items in lines that end between two of them."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(" · ") + len(item) <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return "\n".join(lines)


def _repeat(evidence: Evidence, name: str) -> RenderableType:
    """The commands, never broken into lines, so that they can be copied."""
    commands = [Text(f"  {command}", no_wrap=True, overflow="ignore") for command in repeat_commands(evidence, name)]
    return Group(Text("To repeat it", "bold"), *commands)


def _table(first: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column(first, overflow="fold")
    return table


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0), pad_edge=False)


def _facts(*facts: tuple[str, str]) -> Table:
    grid = _grid()
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value:
            grid.add_row(name, Text(value))
    return grid


def _setting(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
