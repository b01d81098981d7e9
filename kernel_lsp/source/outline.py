"""Finds the declarations of a CUDA file lexically: macros and `#if` branches do not derail it as they do a grammar.

A C++ grammar needs preprocessed text. This module reads text that is not preprocessed: comments, strings and
directives are set aside, brackets are matched, and the text between them at namespace level is a declaration. At
`#else` the brackets are those that were open at `#if`, so a function with two heads and one body stays one declaration.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.text import Span

_SPACE = rb"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)|\\\r?\n"
_WORD = rb"""(?!(?:u8|[uUL])?R")[A-Za-z_$][\w$]*"""
_NUMBER = rb"""\.?\d(?:[\w.]|'\w)*"""
_ASIDE = (
    rb"(?P<space>"
    + _SPACE
    + rb""")
    | (?P<directive>(?:(?<=\n)|\A(?:\xef\xbb\xbf)?)[ \t]*\#(?:"""
    + _SPACE
    + rb"""|"(?:\\.|[^"\\\n])*"|[^\n])*)
    | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<close>[})\]])"""
)
_OPEN = rb" | (?P<open>[{(\[])"
_TOKEN = re.compile(
    rb"(?xs) (?P<word>" + _WORD + rb") | " + _ASIDE + _OPEN + rb" | (?P<number>" + _NUMBER + rb")"
    rb" | (?P<punctuation>::|->|<<|[=!<>]=|[-+*/%&|^]=|[;:=,<>~])"
)
# Inside brackets only brackets matter: all other text, up to the next token that may hide one, is a single match.
_PLAIN = _WORD + rb"|" + _NUMBER + rb"""|[^\w$"'/\\\#{}()\[\]\n]++|/(?![/*])|\n(?![ \t]*\#)"""
_NESTED = re.compile(
    rb"(?xs)" + _ASIDE + rb" | (?P<rest>(?:" + _PLAIN + rb"|[{(\[](?:" + _PLAIN + rb")*+[})\]])++)" + _OPEN
)
_COMMENT_OR_STRING = re.compile(
    rb"""(?xs) //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z) | \b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\n])*" | (?<!\w)'(?:\\.|[^'\\\n])*'"""
)
_CONDITIONAL = re.compile(rb"\s*#\s*(if|elif|else|endif)")
# A parenthesis after one of these belongs to a specifier and is never a list of parameters.
SPECIFIER_CALLS = frozenset(
    b"alignas decltype noexcept requires throw explicit asm static_assert __align__ __attribute__ __declspec "
    b"__launch_bounds__ __cluster_dims__ __maxnreg__ __block_size__".split()
)
# What only a kernel's head has, where a macro of a header hides its `__global__`; CUTLASS' own macro for it.
_MARKS_KERNEL = frozenset((b"__launch_bounds__", b"CUTLASS_GLOBAL"))
_TYPE_WORDS = frozenset((b"struct", b"class", b"union", b"enum"))
_ACCESS = frozenset((b"public", b"private", b"protected"))


class Token(NamedTuple):
    """A token of a declaration's head: a word, a string, a punctuator, or a whole bracketed group (`()`, `[]`, `{}`).

    A template header is one token too, `template`, that reaches to its closing `>`.
    """

    text: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declaration at namespace level.

    Attributes:
        span: from its first token to its `;` or closing brace.
        head: its tokens outside all brackets, without the body of a function.
        body: braces of a function's body, if it has one.
        scope: the namespaces around it, `b""` for an anonymous one.
        extern_c: True if it has C linkage, by its own prefix or an enclosing block.
    """

    span: Span
    head: tuple[Token, ...]
    body: Span | None
    scope: tuple[bytes, ...]
    extern_c: bool

    @property
    def words(self) -> frozenset[bytes]:
        """Return the texts of the head's tokens, and `__global__` for a kernel's head that a macro hides it in."""
        texts = frozenset(token.text for token in self.head)
        return texts if texts.isdisjoint(_MARKS_KERNEL) else texts | {b"__global__"}

    @property
    def declarator(self) -> tuple[int, int] | None:
        """Return the indices in `head` of a function's name (its first token) and of its parameters; None if it is
        no function.
        """
        at = None
        for i, token in enumerate(self.head):
            if token.text in (b"->", b":", b"="):
                break
            if token.text == b"()" and i and self.head[i - 1].text not in SPECIFIER_CALLS:
                at = i
        if at is None:
            return None
        name = at - 1
        if self.head[name].text == b"()":  # a macro that makes the name, or operator()
            name -= 1
        elif self.head[name].text == b">":
            depth = 0
            while name > 0:
                depth += {b">": 1, b"<": -1}.get(self.head[name].text, 0)
                name -= 1
                if depth == 0:
                    break
        return (max(name, 0), at)

    @property
    def macro_call(self) -> bytes | None:
        """Return the macro's name if this is only the call of a macro (with or without a body); else None."""
        texts = [token.text for token in self.head if token.text != b";"]
        is_call = len(texts) == 2 and texts[1] == b"()" and _is_word(texts[0]) and texts[0] not in SPECIFIER_CALLS
        return texts[0] if is_call else None


@dataclass(frozen=True, slots=True)
class Outline:
    """The namespace level of a file: its declarations, and all its preprocessor directives, in order."""

    declarations: tuple[Declaration, ...]
    directives: tuple[Span, ...]


@dataclass(slots=True)
class _State:
    """The reader's position; copied at each `#if`."""

    scopes: list[tuple[tuple[bytes, ...], bool]] = field(default_factory=list[tuple[tuple[bytes, ...], bool]])
    head: list[Token] = field(default_factory=list[Token])
    brackets: list[int] = field(default_factory=list[int])
    start: int | None = None
    angles: int = 0
    body: int | None = None
    end: int = 0

    def copy(self) -> "_State":
        return replace(self, scopes=self.scopes[:], head=self.head[:], brackets=self.brackets[:])

    def clear(self) -> None:
        self.head, self.brackets, self.start, self.angles, self.body = [], [], None, 0, None


class _Reader:
    """Reads one file's tokens into declarations."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.declarations: list[Declaration] = []
        self.directives: list[Span] = []
        self.state = _State()
        self.branches: list[_State] = []

    def read(self, start: int, end: int) -> Outline:
        at = start
        while (match := (_NESTED if self.state.brackets else _TOKEN).search(self.data, at, end)) is not None:
            kind, at = match.lastgroup, match.end()
            if kind == "space":
                continue
            if kind == "rest":
                self.state.end = at - len(match[0]) + len(match[0].rstrip())
            elif kind == "directive":
                self.directive(match)
            elif self.state.brackets:
                self.nested(kind, match.end())
            else:
                self.outer(kind, Token(match[0], match.start(), match.end()))
        if self.state.head:
            self.finish(self.state.end)
        return Outline(tuple(self.declarations), tuple(self.directives))

    def directive(self, match: re.Match[bytes]) -> None:
        self.directives.append(Span(match.start(), match.end()))
        conditional = _CONDITIONAL.match(match[0])
        if conditional is None:
            return
        if conditional[1] == b"if":
            self.branches.append(self.state.copy())
        elif conditional[1] == b"endif":
            if self.branches:
                self.branches.pop()
        elif self.branches:
            start = self.state.start
            self.state = self.branches[-1].copy()
            self.state.start = start if self.state.start is None else self.state.start

    def nested(self, kind: str | None, end: int) -> None:
        """Handle a token inside brackets, where only brackets matter."""
        state = self.state
        if kind == "open":
            state.brackets.append(end - 1)
        elif kind == "close":
            start = state.brackets.pop()
            if not state.brackets:
                group = self.data[start : start + 1] + self.data[end - 1 : end]
                if state.body is not None:
                    self.finish(end)
                elif not state.angles:
                    state.head.append(Token(group, start, end))
        state.end = end

    def outer(self, kind: str | None, token: Token) -> None:
        """Handle a token at namespace level."""
        state = self.state
        if state.angles:
            self.template_header(token)
        elif token.text == b"}":
            if state.head:
                self.finish(state.end)
            if state.scopes:
                state.scopes.pop()
        elif token.text == b"{":
            self.open_brace(token)
        elif kind == "open":
            state.brackets.append(token.start)
        elif token.text == b";":
            state.head.append(token)
            self.finish(token.end)
        elif token.text == b"<" and state.head and state.head[-1].text == b"template":
            state.angles = 1
        elif kind != "number":
            if kind == "word" and self.ends_before(token):
                self.finish(state.end)
            state.head.append(token)
            if token.text == b":" and len(state.head) == 2 and state.head[0].text in _ACCESS:
                state.clear()
        if state.start is None and state.head:
            state.start = state.head[0].start
        state.end = token.end

    def template_header(self, token: Token) -> None:
        state = self.state
        if token.text in b"([{" and len(token.text) == 1:
            state.brackets.append(token.start)
        state.angles += {b"<": 1, b">": -1}.get(token.text, 0)
        if not state.angles:
            state.head[-1] = Token(b"template", state.head[-1].start, token.end)

    def open_brace(self, token: Token) -> None:
        state = self.state
        words = [t.text for t in state.head]
        if b"namespace" in words and words[0] != b"using":
            names = tuple(w for w in words[words.index(b"namespace") + 1 :] if _is_word(w) and w != b"inline")
            state.scopes.append((names or (b"",), False))
            state.clear()
        elif words == [b"extern", b'"C"'] or words == [b"extern", b'"C++"']:
            state.scopes.append(((), words[1] == b'"C"'))
            state.clear()
        else:
            state.brackets.append(token.start)
            if _opens_function(words):
                state.body = token.start

    def ends_before(self, token: Token) -> bool:
        """Return True if the head is a macro call without `;` and `token`, on a later line, begins another
        declaration.
        """
        head = self.state.head
        return (
            len(head) == 2
            and head[1].text == b"()"
            and _is_word(head[0].text)
            and not head[0].text.startswith(b"__")
            and head[0].text not in SPECIFIER_CALLS
            and token.text not in (b"const", b"noexcept", b"override", b"final")
            and b"\n" in self.data[head[1].end : token.start]
        )

    def finish(self, end: int) -> None:
        state = self.state
        names = tuple(name for scope, _ in state.scopes for name in scope)
        prefix = tuple(t.text for t in state.head[:2]) == (b"extern", b'"C"')
        starts = (state.start, state.body, state.head[0].start if state.head else None)
        start = next((at for at in starts if at is not None), end)
        made = Declaration(
            Span(start, end),
            tuple(state.head),
            None if state.body is None else Span(state.body, end),
            names,
            prefix or any(c for _, c in state.scopes),
        )
        # Both branches of an `#if` may end what began before it: it is one declaration, up to the later end.
        if self.declarations and self.declarations[-1].span.start >= made.span.start:
            self.declarations[-1] = replace(made, span=Span(start, end))
        else:
            self.declarations.append(made)
        state.clear()


def _is_word(text: bytes) -> bool:
    return text[:1].isalpha() or text[:1] in (b"_", b"$")


def _opens_function(words: list[bytes]) -> bool:
    """Return True if a brace after these words of a head opens a function's body, not a type or an initialiser."""
    if not words:
        return True  # a block by itself: not legal, and nothing to read in it
    if b"=" in words and b"operator" not in words:
        return False
    if b"()" not in words:
        return False
    start = 2 if words[0] in (b"__align__", b"alignas") and len(words) > 2 else 0  # `__align__(8) struct Pair {`
    before = (b"template", b"typedef", b"static", b"inline", b"extern")
    plain = next((word for word in words[start:] if word not in before), b"")
    if plain in _TYPE_WORDS:
        return words[-1] == b"()" and words[-2] not in SPECIFIER_CALLS
    # `S::S(int a) : x{a} {}`: a brace after a name in the list of initialisers belongs to that name.
    return not (b":" in words and _is_word(words[-1]))


def outline(data: bytes, span: Span | None = None) -> Outline:
    """Return the declarations and directives of UTF-8 CUDA source, or of its part `span`; offsets are those of `data`.

    Never fails: text that is not CUDA gives meaningless declarations.
    """
    return _Reader(data).read(*((span.start, span.end) if span else (0, len(data))))


def code_only(data: bytes) -> bytes:
    """Return `data` with comments and strings blanked, at equal length and with all line breaks."""
    return _COMMENT_OR_STRING.sub(lambda match: blanked(match[0]), data)


def without_comments(data: bytes) -> bytes:
    """Return `data` with comments blanked, at equal length and with all line breaks."""
    return _COMMENT_OR_STRING.sub(lambda match: blanked(match[0]) if match[0].startswith(b"/") else match[0], data)


def comments_and_strings(data: bytes) -> Iterator[tuple[Span, bool]]:
    """Yield the comments and strings of `data`, in order; True for a comment."""
    for match in _COMMENT_OR_STRING.finditer(data):
        yield Span(match.start(), match.end()), match[0].startswith(b"/")


def open_braces(data: bytes) -> int:
    """Return the number of braces that a text opens and leaves open; 0 where it closes more than it opens."""
    code = code_only(data)
    return max(0, code.count(b"{") - code.count(b"}"))
