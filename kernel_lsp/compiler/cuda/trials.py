"""Finds for each template of a CUDA file instances that compile: all templates together, then one by one.

Worker processes only. One compilation of many templates takes hardly longer than that of one, since most of the time is
spent on headers. So all are compiled together, and those that the errors are about are tried with their next instance.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.compiler.builds.assumed import NO_TIME
from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.machine_code.symbols import declared_name
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.template_arguments import without_cast
from kernel_lsp.source.text import Lines

UNKNOWN = "nothing tells or lets assume its template arguments"
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_NAMED = re.compile(r"(\w+)\s*<")

Compile = Callable[[Sequence[str]], Build]
"""Compiles a file with the template instances given by name."""


@dataclass(frozen=True, slots=True)
class Way:
    """Instances of a template, and the types assumed for them."""

    names: tuple[str, ...]
    types: tuple[str, ...] = ()


Choice = tuple[Way | None, str]
"""The instances that a template is compiled for; None with the reason if there are none."""


def names_in(chosen: Mapping[int, Choice]) -> tuple[str, ...]:
    """Return the names of all chosen instances."""
    return tuple(name for way, _ in chosen.values() if way is not None for name in way.names)


def made_in(build: Build) -> frozenset[str]:
    """Return the names, without namespaces, of the kernels in a build; an overload's name is a whole declaration."""
    facts = build.binary.kernels if build.binary else ()
    return frozenset(declared_name(fact.name).rpartition("::")[2] for fact in facts)


class TemplateTrials:
    """The templates of a file, by their numbers among its kernels, with the ways that are left to each.

    Args:
        source: the file.
        kernels: all of its kernels.
        ways: the ways to compile each template, likeliest first.
        compile_names: compiles the file with instances.
    """

    def __init__(
        self, source: SourceFile, kernels: Sequence[Kernel], ways: Mapping[int, Sequence[Way]], compile_names: Compile
    ) -> None:
        self._source, self._compile = source, compile_names
        self._left = {at: [*own] for at, own in ways.items() if own}
        self._first: dict[int, Diagnostic | None] = {}
        self._problems: dict[int, str] = {}
        lines = Lines(source.text.encode())
        self._extents = {
            at: range(lines.position(kernels[at].span.start)[0], lines.position(kernels[at].span.end)[0] + 1)
            for at in ways
        }
        self._numbers: dict[str, list[int]] = {}
        for at in ways:
            self._numbers.setdefault(kernels[at].name.rpartition("::")[2], []).append(at)
        self._plain: Build | None = None
        self.chosen: dict[int, Choice] = dict.fromkeys(ways, (None, UNKNOWN))
        for at in self._left:
            self._choose(at)

    def together(self, deadline: float) -> Build:
        """Return the first build of all templates that works, else the last that was tried.

        It ends where an error is about no template, or about one that is not told.
        """
        build = self._compile(names_in(self.chosen))
        while build.binary is None and time.perf_counter() < deadline:
            guilty = self._guilty(build)
            if not guilty:
                break
            repeated = any(said == self._first.get(at) for at, said in guilty.items())
            if repeated and self.plain().binary is None:  # the errors do not depend on the instances
                return self.plain()
            self._leave_to_the_file(guilty)
            for at, said in guilty.items():
                if at in self._left:
                    self._fail(at, said)
            names = names_in(self.chosen)
            build = self._compile(names) if names else self.plain()
        return build

    def plain(self) -> Build:
        """Return the build without any instance."""
        self._plain = self._plain or self._compile(())
        return self._plain

    def one_by_one(self, deadline: float) -> None:
        """Find the first way of each template that works alone."""
        for at in [*self._left]:
            while at in self._left and self.chosen[at][0] is not None:
                if time.perf_counter() > deadline:
                    self.chosen[at] = (None, NO_TIME)
                    break
                build = self._compile(self._left[at][0].names)
                if build.binary is not None:
                    break
                self._fail(at, _first_error(build))

    def _leave_to_the_file(self, guilty: Iterable[int]) -> None:
        """Ask for no instance of templates of which the file's own host code makes one, of types without a name."""
        fresh = [at for at in guilty if at not in self._first]
        made = made_in(self.plain()) if fresh else frozenset[str]()
        for at in (at for name, numbers in self._numbers.items() if name in made for at in numbers if at in fresh):
            del self._left[at]
            del self.chosen[at]

    def _choose(self, at: int) -> None:
        self.chosen[at] = (self._left[at][0], "")

    def _fail(self, at: int, said: Diagnostic | None) -> None:
        """Go on to a template's next way after an error."""
        way = self._left[at].pop(0)
        if at not in self._problems:
            words = self._words(said) if said else "it does not compile"
            self._problems[at] = f"as {without_cast(way.names[0])}, {words}".splitlines()[0]
            self._first[at] = said
        elif said is not None and said == self._first[at] and (unknown := _UNDEFINED.match(said.message)):
            # No instance brings a name into being, but one may not have it among its arguments.
            without = [one for one in self._left[at] if not re.search(rf"\b{unknown[1]}\b", one.names[0])]
            if len(without) == len(self._left[at]):
                self._problems[at] = f"{self._words(said)}; `build.options` can define it, `-D{unknown[1]}=...`"
                without.clear()
            self._left[at] = without
        if self._left[at]:
            self._choose(at)
        else:
            del self._left[at]
            self.chosen[at] = (None, self._problems[at])

    def _guilty(self, build: Build) -> dict[int, Diagnostic]:
        """Return the templates that errors are about, each with its first error."""
        found: dict[int, Diagnostic] = {}
        for said in build.diagnostics:
            if said.severity is not Severity.ERROR:
                continue
            inside = [at for at in self._left if said.path == str(self._source.path) and said.line in self._extents[at]]
            named = [at for name in _NAMED.findall(said.message) for at in self._numbers.get(name, ())]
            for at in inside or named:
                if at in self._left:
                    found.setdefault(at, said)
        return found

    def _words(self, said: Diagnostic) -> str:
        """Return a message with its line, and with its file where that is another."""
        place = "" if said.path == str(self._source.path) else f"{Path(said.path).name}, "
        return f"{place}line {said.line}: {said.message}"


def _first_error(build: Build) -> Diagnostic | None:
    return next((said for said in build.diagnostics if said.severity is Severity.ERROR), None)
