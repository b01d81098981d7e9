"""The target of a judgement: a kernel file with its workload, and versions of the kernel."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.errors import SourceError
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, language_of, pick_kernel, read_source
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import source_part
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.spec import WorkloadFile, find_workloads, require_workload, workload_path


@dataclass(frozen=True, slots=True)
class Target:
    """A kernel file under judgement.

    Attributes:
        language: what the file is written in.
        source: the kernel file, whose text is the baseline.
        kernels: all of the file's; none of a KernelBench problem, whose `Model` is the baseline.
        kernel: the one in question, or None for all of them.
        workload: how it is called and what is right.
        launch_text: the workload file whose `launch` belongs to the baseline, where that is not the workload's own.
    """

    language: Language
    source: SourceFile
    kernels: tuple[Kernel, ...]
    kernel: Kernel | None
    workload: WorkloadFile
    launch_text: str | None = None

    @property
    def has_own_workload(self) -> bool:
        """Return True if the workload is the one that the kernel file's name leads to, not one of several others."""
        return self.workload.problem or self.workload.source.path in (self.source.path, workload_path(self.source.path))

    @property
    def baseline(self) -> Candidate:
        """Return the user's file as it stands, as a candidate."""
        return self.version(self.source.text, "baseline", "baseline", self.launch_text)

    @property
    def key(self) -> str:
        """Return a text that tells targets apart, by file, kernel, workload and text."""
        named = str(self.source.path), self.kernel.name if self.kernel else ""
        parts = (*named, self.workload.source.text, self.baseline.digest)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def version(
        self, text: str, label: str, origin: str, launch_text: str | None = None, launch_path: Path | None = None
    ) -> Candidate:
        """Return a candidate with other kernel text, and other launch text if that stands in the workload file.

        The launch text replaces the workload's own unless it has a file of its own, at `launch_path`.
        """
        launch = None
        if not self.workload.in_kernel_file and self.workload.has_launch:
            file = self.workload.source
            launch = file if launch_text is None else SourceFile(launch_path or file.path, launch_text)
        if self.workload.problem:
            return self.answer(SourceFile(self.source.path, text), label, origin)
        return Candidate(self.language, SourceFile(self.source.path, text), launch, label, origin)

    def answer(self, source: SourceFile, label: str, origin: str) -> Candidate:
        """Return an answer to the target's KernelBench problem; its language may differ from the baseline's."""
        return Candidate(language_of(source.path, source.text) or self.language, source, None, label, origin)


def make_target(
    path: Path,
    kernel: str | None = None,
    workload: Path | None = None,
    texts: Mapping[Path, str] | None = None,
    problems: Path | None = None,
    folders: Sequence[Path] = (),
) -> Target:
    """Return the target that a command line or an editor names, with one workload; for arguments see `make_targets`.

    Raises:
        SourceError: the file cannot be read, is of no known language, or does not have the kernel.
        WorkloadError: there is no workload, it is not one, or there are several and nothing says which one is meant.
    """
    language, source, kernels, chosen = _read(path, kernel, texts)
    return Target(language, source, kernels, chosen, require_workload(source, workload, texts, problems, folders))


def make_targets(
    path: Path,
    kernel: str | None = None,
    workload: Path | None = None,
    texts: Mapping[Path, str] | None = None,
    problems: Path | None = None,
    folders: Sequence[Path] = (),
) -> tuple[Target, ...]:
    """Return a target for each workload of the kernel file that a command line or an editor names, its own first.

    Args:
        path: the kernel file.
        kernel: one of its kernels; all of them by default.
        workload: where it is not found by its name.
        texts: files to be taken as they are here, not as they are on disk.
        problems: folder of KernelBench's problems, with level1/ and so on.
        folders: where workloads may lie that are not beside their kernel.

    Raises:
        SourceError: the file cannot be read, is of no known language, or does not have the kernel.
        WorkloadError: there is no workload, or one of them is none.
    """
    language, source, kernels, chosen = _read(path, kernel, texts)
    found = find_workloads(source, workload, texts, problems, folders)
    every = found or (require_workload(source, workload, texts, problems, folders),)  # which says what to do
    return tuple(Target(language, source, kernels, chosen, one) for one in every)


def _read(
    path: Path, kernel: str | None, texts: Mapping[Path, str] | None
) -> tuple[Language, SourceFile, tuple[Kernel, ...], Kernel | None]:
    """The kernel file: its language, its text, its kernels, and the one of the name."""
    texts = texts or {}
    source = SourceFile(path, texts[path]) if path in texts else read_source(path)
    language = language_of(path, source.text)
    kernels = find_kernels(source.text, path) if language else ()
    if language is None and is_python(path) and (missing := _missing(source.text)):
        fix = "`get_inputs()` returns the arguments of `forward` as a list, `get_init_inputs()` those of `Model()`."
        raise SourceError(f"This module needs {' and '.join(missing)} to be run", path, fix=fix)
    if language is None or not (kernels or source_part(language).computed):
        raise SourceError(
            "no kernel was found in this file",
            path,
            fix="A kernel is a `__global__` function in a CUDA file or header or in text for `load_inline`, or a "
            "`@triton.jit` function in a .py file.",
        )
    chosen = pick_kernel(kernels, kernel) if kernel else None
    return language, source, kernels, chosen


def _missing(text: str) -> list[str]:
    """Return the names that a file with a class `Model` lacks to be a KernelBench problem."""
    if not re.search(r"^class\s+Model\b", text, re.MULTILINE):
        return []
    return [f"`{name}`" for name in ("get_inputs", "get_init_inputs") if not re.search(rf"^def\s+{name}\b", text, re.M)]
