"""Compiles slices of a file that have less of its host code, where the usual ones fail, and says what was left out.

It is done for a file's facts alone.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.builds.build import Build, Diagnostic
from kernel_lsp.compiler.cuda.diagnostics import has_errors
from kernel_lsp.compiler.cuda.host_code import gets_further, host_code_left_out, lacks_what_was_cut
from kernel_lsp.compiler.cuda.wrong_parts import without_wrong_parts
from kernel_lsp.compiler.headers.user import UserHeader


@dataclass(frozen=True, slots=True)
class Slices:
    """The device code of a file.

    Attributes:
        text: of the file.
        headers: with their host code cut.
        brought: the names of headers that are included before it.
        left_out: warnings about host code that the usual slices have and these do not.
    """

    text: str
    headers: tuple[UserHeader, ...]
    brought: tuple[str, ...]
    left_out: tuple[Diagnostic, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the file and its headers."""
        return self.text, *(header.text for header in self.headers)


def barer(
    first: Build,
    usual: Slices,
    bare: Slices,
    path: Path,
    compile_slices: Callable[[Slices], Build],
    whole: Container[Path] | None,
) -> tuple[Build, Slices, Build | None]:
    """Return a build of bare slices and these, or the first with its own where none gets further; and one with errors
    that is better than none, if no build works without: device code was left out, or they are all in kernels.

    Args:
        first: the build of the usual slices, which failed.
        usual: these slices.
        bare: what device code mentions alone.
        path: of the file.
        compile_slices: compiles slices.
        whole: headers of which no more is cut; None where nothing more is.
    """
    stand_ins = bare.brought != usual.brought

    def noted(build: Build) -> Build:
        return _with(build, host_code_left_out(first, build, stand_ins=stand_ins))

    other = compile_slices(bare)
    build, taken = first, usual
    if gets_further(other, first, usual.texts, bare.texts):
        taken = replace(bare, left_out=host_code_left_out(first, other, stand_ins=stand_ins))
        build = _with(other, taken.left_out)
    if other.binary is not None or whole is None:
        return build, taken, None
    files = (UserHeader(path.name, path, bare.text), *bare.headers)
    fewer = without_wrong_parts(
        other, files, lambda left: compile_slices(replace(bare, text=left[0].text, headers=tuple(left[1:]))), whole
    )
    if fewer is None or lacks_what_was_cut(fewer, usual.texts, bare.texts):
        return build, taken, None
    return (build, taken, noted(fewer)) if has_errors(fewer.diagnostics) else (noted(fewer), taken, None)


def by_nvcc(
    slices: Slices, path: Path, headers: Sequence[UserHeader], compiled: Callable[..., Build], *, spare_parts: bool
) -> Build:
    """Return a build of slices by nvcc; with `spare_parts` one without the parts that do not compile, if that works.

    Args:
        slices: of the file and its headers.
        path: of the file.
        headers: those that stand for others.
        compiled: compiles a `source` with headers `instead` of the files'.
        spare_parts: see `build_cuda`.
    """
    build = compiled(source=slices.text, instead=headers)
    if build.binary is None and spare_parts:
        files = (UserHeader(path.name, path, slices.text), *headers)
        fewer = without_wrong_parts(build, files, lambda left: compiled(source=left[0].text, instead=left[1:]))
        if fewer is not None and not has_errors(fewer.diagnostics):
            build = _with(fewer, host_code_left_out(build, fewer, stand_ins=False))
    return _with(build, slices.left_out)


def _with(build: Build, said: Sequence[Diagnostic]) -> Build:
    return replace(build, diagnostics=(*build.diagnostics, *said))
