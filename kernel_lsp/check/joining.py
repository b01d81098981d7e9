"""Combines the results of several workloads of one kernel file."""

from collections.abc import Sequence
from dataclasses import replace

from kernel_lsp.check.dependencies import Dependencies
from kernel_lsp.check.record import Examination
from kernel_lsp.judge.emulation import Emulation


def joined_texts(every: Sequence[Dependencies]) -> Dependencies:
    """Return the texts that a file's checks read, one check for each workload."""
    others = {file.path: file for each in every for file in each.others}
    return replace(every[0], others=tuple(others[path] for path in sorted(others)))


def joined(every: Sequence[tuple[str, Examination]]) -> Examination:
    """Return the results with each workload as one, with the workload's name added to each case.

    A finding names its workload unless all workloads have it. A rule counts as checked if it was with any of them.
    """
    if len(every) == 1:
        return every[0][1]
    parts = [examined for _, examined in every]
    timed = [examined.times for examined in parts]
    return Examination(
        findings=tuple(
            dict.fromkeys(
                finding
                if all(finding in other.findings for other in parts)
                else replace(finding, message=f"with {name}: {finding.message}")
                for name, part in every
                for finding in part.findings
            )
        ),
        checks=tuple(
            check.model_copy(update={"case": f"{name}: {check.case}"}) if check.case else check
            for name, part in every
            for check in part.checks
        ),
        resources=tuple({one.name: one for part in parts for one in part.resources}.values()),
        done=tuple(sorted({need for part in parts for need in part.done})),
        times=None
        if None in timed
        else tuple(replace(time, case=f"{name}: {time.case}") for name, part in every for time in part.times or ()),
        lasting=all(part.lasting for part in parts),
        built_for=next(filter(None, (part.built_for for part in parts)), ""),
    )


def joined_emulations(every: Sequence[Emulation | None]) -> Emulation | None:
    """Return all emulated runs; None if there are none."""
    ran = [one for one in every if one is not None]
    if not ran:
        return None
    return Emulation(
        tuple(run for one in ran for run in one.runs), next((one.needs_gpu for one in ran if one.needs_gpu), None)
    )
