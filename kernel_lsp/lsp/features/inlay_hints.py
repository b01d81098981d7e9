"""Inlay hints at the ends of lines, each kind only if its setting is on."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.profiles import Profiles
from kernel_lsp.lsp.settings import ClientSettings

Hint = tuple[int, str, str]
"""A line from 1, the hint, and what it means."""

Source = Callable[[Document], Iterable[Hint]]

_PLACE = ("kernel", "path", "line")


class InlayHints:
    """The hints of a text, from its last compilation, its last run and its last profile."""

    def __init__(self, documents: Documents, settings: ClientSettings, analysis: Analysis, profiles: Profiles) -> None:
        self._documents, self._settings = documents, settings
        self._analysis, self._profiles = analysis, profiles
        self._sources: dict[str, Source] = {  # by the setting that asks for them
            "register_hints": self.register_hints,
            "sector_hints": self.sector_hints,
            "bank_hints": self.bank_hints,
            "profile_hints": self.profile_hints,
        }

    def hints(self, params: types.InlayHintParams) -> list[types.InlayHint]:
        """Return the hints of the requested lines."""
        document = self._documents.read(params.text_document.uri)
        editor = self._settings.at(document.path).editor
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        found: list[types.InlayHint] = []
        for setting, source in self._sources.items():
            if not getattr(editor, setting):
                continue
            for line, text, meaning in source(document):
                if line in lines:
                    end = document.position(document.lines.offset(line, 1 << 30))
                    found.append(types.InlayHint(end, text, tooltip=meaning, padding_left=True))
        return found

    def register_hints(self, document: Document) -> Iterator[Hint]:
        """Yield `40 regs`: most registers live at a line, in the kernel with most of them there."""
        for line, found in self._analysis.lines(document).items():
            most = max(found, key=lambda one: one.live)
            yield line, f"{most.live} regs", f"Registers live in each thread here, in {most.kernel} on {most.arch}"

    def sector_hints(self, document: Document) -> Iterator[Hint]:
        """Yield `4.0 sectors`: memory sectors of 32 bytes for each request of a warp, at loads and stores."""
        for line, counted in self._counted(document):
            requests = counted["load_requests"] + counted["store_requests"]
            if requests:
                sectors = counted["load_sectors"] + counted["store_sectors"]
                ideal = counted["load_ideal_sectors"] + counted["store_ideal_sectors"]
                meaning = (
                    f"Sectors of 32 bytes for each request of a warp; side by side it would take {ideal / requests:.1f}"
                )
                yield line, f"{sectors / requests:.1f} sectors", meaning

    def bank_hints(self, document: Document) -> Iterator[Hint]:
        """Yield `8.0-way`: passes over the banks of shared memory for each request of a warp, where banks conflict."""
        for line, counted in self._counted(document):
            conflicts = counted["shared_load_conflicts"] + counted["shared_store_conflicts"]
            if conflicts:
                requests = counted["shared_load_requests"] + counted["shared_store_requests"]
                wavefronts = counted["shared_load_wavefronts"] + counted["shared_store_wavefronts"]
                meaning = f"Passes over the banks of shared memory for each request; {conflicts} in all are conflicts"
                yield line, f"{wavefronts / requests:.1f}-way", meaning

    def profile_hints(self, document: Document) -> Iterator[Hint]:
        """Yield `counted: 31 % of instructions, 50 % of traffic` at each costly line of a profiled kernel."""
        for kernel in self._profiles.of(document):
            for one in kernel.lines:
                if one.line:
                    yield one.line, one.hint, f"{one.hint[0].upper()}{one.hint[1:]} of `{kernel.name}`. {kernel.about}"

    def _counted(self, document: Document) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the counts of the last emulated run at each line of a text, summed over its kernels."""
        lines: dict[int, Counter[str]] = {}
        for found in self._analysis.counters(document):
            if found["path"] == str(document.path):
                lines.setdefault(found["line"], Counter()).update({k: v for k, v in found.items() if k not in _PLACE})
        yield from lines.items()
