"""List kernels and plain modules below a folder with facts from earlier builds, running nothing.

It reads many files, and so belongs into a thread.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.check.baseline import find_root, name_in, read_baseline, regressions
from kernel_lsp.compiler.builds.answers import cached_build
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_devices
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.judge.facts import as_it_stands
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.lsp.documents import LARGEST, Document
from kernel_lsp.refine.kernel_generation import MODULE_SIGN
from kernel_lsp.source.kernel import base_name
from kernel_lsp.source.language import signs, suffixes
from kernel_lsp.source.python import is_python

_PASSED_OVER = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist"})
MOST = 500
"""Files that are listed; a tree of more is nobody's to read."""


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The facts on a file's kernels as they stand.

    Attributes:
        facts: of each kernel its hungriest instance; without those that were never compiled.
        drift: of each kernel what got worse since the baseline in the repository, a sentence each.
    """

    facts: Mapping[str, KernelResources]
    drift: Mapping[str, Sequence[str]]


def kernel_paths(folders: Sequence[Path]) -> list[Path]:
    """Return the files that may hold kernels or a plain module, sorted, at most `MOST`; hidden folders are skipped."""
    found: list[Path] = []
    for folder in folders:
        for path in _files(folder):
            if path not in found and _may_be_listed(path):
                found.append(path)
            if len(found) == MOST:
                return found
    return found


def look_at(document: Document, settings: Settings) -> KnownFacts:
    """Return the facts that earlier builds of a text left in the cache, and regressions from the baseline."""
    try:
        device = next(iter(target_devices(settings.gpu, settings.arch).values()))
        built = cached_build(settings, device, *as_it_stands(document.source, None, settings))
    except KernelLspError:  # its workload cannot be read, or there is no such GPU, which is said elsewhere
        return KnownFacts({}, {})
    if built is None:
        return KnownFacts({}, {})
    found = resources_of(built)
    facts: dict[str, KernelResources] = {}
    for one in found:
        name = base_name(one.name)
        facts[name] = max(facts.get(name, one), one, key=lambda fact: fact.registers)
    drift: dict[str, list[str]] = {}
    root = find_root(document.path)
    try:
        record = read_baseline(root).find(name_in(root, document.path), device.arch)
    except ConfigurationError:  # `check` says so
        record = None
    for worse in regressions(document.source, document.kernels, found, record) if record is not None else ():
        at = next((k for k in document.kernels if document.lines.position(k.name_span.start)[0] == worse.line), None)
        if at is not None:
            drift.setdefault(at.name, []).append(worse.message)
    return KnownFacts(facts, drift)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _PASSED_OVER)
        yield from (Path(place, name) for name in sorted(names) if name.endswith(suffixes()))


def _may_be_listed(path: Path) -> bool:
    """Return True for a file with a sign of a kernel or module in its first bytes, however they are encoded.

    A file that cannot be read counts too, unless it is Python: its user has to know.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as file:
            start = file.read(LARGEST).replace(b"\0", b"")  # UTF-16 has them between the letters
    except OSError:
        return not is_python(path)
    wanted = (*signs(path.suffix), *([MODULE_SIGN] if is_python(path) else []))
    return any(sign.encode() in start for sign in wanted)
