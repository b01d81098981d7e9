"""Expands macros of C++ texts that paste words together, as far as the same text defines them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^()]*)\))?((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_PASTE = re.compile(r"\s*##\s*")
_OPENING = re.compile(r"\s*\(")
_ROUNDS = 6  # of macros within macros
_LONGEST = 8192  # characters of an expansion
_NAME = 128  # of an argument
_BEHIND = 40  # behind a use, which tell what the name is
_MOST = 8_000_000  # characters that are read: a hostile text must not take longer than a second


class TooManyMacrosError(ValueError):
    """Macros of a text are so long, or so deep in each other, that nobody reads it."""


@dataclass(frozen=True, slots=True)
class _Macro:
    """A macro: its parameters, None if it has no list of them, and its text."""

    parameters: tuple[str, ...] | None
    text: str


def pasted_texts(code: str) -> Iterator[tuple[int, str]]:
    """Yield where macros are used outside of others, and what each use becomes with a little of what follows it.

    Each use comes twice: macros in its arguments are replaced first where these are not pasted. Nothing is yielded
    where no macro pastes.

    Raises:
        TooManyMacrosError: it would take too long.
    """
    full = code.replace("%:%:", "##  ").replace("%:", "# ")  # other spellings of `##` and `#`
    expansion = _Expansion({match[1]: _read(match) for match in _DEFINE.finditer(full)})
    if not expansion.pastes:
        return
    plain = _DEFINE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), full)
    for match in _WORD.finditer(plain):
        if (end := expansion.end_of_use(plain, match)) is not None:
            for ahead in (False, True):
                text = expansion.of(plain[match.start() : end], ahead=ahead)
                yield match.start(), text + plain[end : end + _BEHIND]


def _read(match: re.Match[str]) -> _Macro:
    text = re.sub(r"\\\r?\n", " ", match[4])
    if match[2] is None:
        return _Macro(None, text)
    names = (name.strip() for name in match[3].split(","))
    return _Macro(tuple("__VA_ARGS__" if name == "..." else name for name in names), text)


class _Expansion:
    """Replaces the macros of one text; of several of a name the last one counts."""

    def __init__(self, macros: Mapping[str, _Macro]) -> None:
        self._macros, self._left = macros, _MOST

    @property
    def pastes(self) -> bool:
        """True if any macro pastes words together."""
        return any("##" in macro.text for macro in self._macros.values())

    def of(self, text: str, *, ahead: bool, rounds: int = _ROUNDS) -> str:
        """Return a text with its macros replaced, with `ahead` those in arguments first."""
        for left in range(rounds, 0, -1):
            self._left -= len(text)
            if self._left < 0 or len(text) > _LONGEST:
                raise TooManyMacrosError("macros are too long or too deep to be read")
            before, text = text, _PASTE.sub("", self._once(text, left - 1 if ahead else 0))
            if text == before:
                break
        return text

    def end_of_use(self, text: str, name: re.Match[str]) -> int | None:
        """Return where the use of a macro ends; None for a word that is none, or lacks the macro's arguments."""
        macro = self._macros.get(name[0])
        if macro is None or macro.parameters is None:
            return None if macro is None else name.end()
        opening = _OPENING.match(text, name.end())
        depth = 0
        for place in range(opening.end() - 1, min(len(text), opening.end() + _LONGEST)) if opening else ():
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth == 0:
                return place + 1
        return None

    def _once(self, text: str, ahead: int) -> str:
        parts: list[str] = []
        at = 0
        for match in _WORD.finditer(text):
            if match.start() < at or (end := self.end_of_use(text, match)) is None:
                continue
            macro = self._macros[match[0]]
            given = _arguments(text[match.end() : end], len(macro.parameters or ()))
            if ahead:
                given = [self.of(argument, ahead=True, rounds=ahead) for argument in given]
            values = dict(zip(macro.parameters or (), given, strict=False))
            parts += [text[at : match.start()], _filled(macro.text, values)]
            at = end
        return "".join([*parts, text[at:]])


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: values.get(word[0], word[0]), text)


def _arguments(text: str, count: int) -> list[str]:
    """Return so many arguments in a list with its parentheses; the last one takes what is left."""
    found, depth = [""], 0
    for character in text.strip()[1:-1]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0 and len(found) < count:
            found.append("")
        else:
            found[-1] += character
    return [argument.strip()[:_NAME] for argument in found]
