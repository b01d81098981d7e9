"""Cuts the device code out of a CUDA file by blanking all host code in place.

Host code and its headers dominate the cost of compiling a kernel: a file that includes PyTorch takes nvcc a minute, its
slice takes NVRTC milliseconds. Nothing moves: every byte of the slice is the byte of the file or a space.
"""

import codecs
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.macros import Macro, expand, find_macros
from kernel_lsp.source.outline import Declaration, code_only, outline, without_comments
from kernel_lsp.source.text import Span

_DEVICE_WORDS = frozenset((b"__global__", b"__device__", b"__constant__", b"__shared__", b"__managed__"))
_DEVICE = re.compile(rb"\b__(?:global|device|constant|shared|managed)__\b|\b__attribute__\s*\(\(\s*(?:global|device)\b")
# Macros of other files that mean `__device__`, by their names: CUTLASS_HOST_DEVICE, C10_DEVICE, GPU_LAMBDA.
_DEVICE_MACRO = re.compile(rb"(?:[A-Z0-9]+_)*(?:DEVICE|GLOBAL|HD|GPU_LAMBDA|CUDA_CALLABLE)(?:_[A-Z0-9]+)*")
_TORCH = re.compile(rb"\b(?:torch|at|c10|caffe2|pybind11|py)\s*::")
# What a bare slice may have of PyTorch's namespaces: accessors of tensors, for which a header of our own stands.
_ACCESSOR_OF = re.compile(
    rb"\b(?:torch|at)\s*::(?=\s*(?:(?:Generic)?PackedTensorAccessor|TensorAccessor|(?:Default|Restrict)PtrTraits))"
)
_HOST = re.compile(
    _TORCH.pattern
    + rb"|(?<!cuda::)\bstd\s*::|<<<|\bcuda[A-Z]\w*\s*\(|\b(?:cublas|cudnn|cufft|cusparse|cusolver|nccl)[A-Z]"
)
# A call of the host's, an exception or a call of a macro, which may hide either.
_MAYBE_HOST = re.compile(_HOST.pattern + rb"|\bnvtx[A-Z]|\b(?:throw|try)\b|\b[A-Z][A-Z0-9_]{3,}\s*\(")
_HOST_OR_SAID = re.compile(_HOST.pattern + rb"|\b__host__\b")
_HOST_NAMESPACES = frozenset((b"std", b"torch", b"at", b"c10", b"caffe2", b"pybind11"))
_HOST_MACRO = re.compile(rb"(?:TORCH|STABLE_TORCH|PYBIND11|AT|C10|NB|TVM|GTEST|TEST|TYPED_TEST|BENCHMARK)(?:_\w+)?")
_OF_A_CLASS = re.compile(rb"\s*template\s+(?:class|struct)\b")  # an explicit instantiation: its kernels are functions
_HOST_HEADER = re.compile(
    rb"""(?x)
      (?:torch|ATen|c10|caffe2|pybind11|nanobind|gtest|gmock|glog|gflags|benchmark|fmt|boost|nvtx3|sys|bits)/.*
    | (?:cuda_runtime|cuda_runtime_api|cuda_profiler_api|cudaTypedefs|device_launch_parameters|driver_types)\.h
    | (?:Python|numpy/.*)\.h
    | (?:cublas|cudnn|cufft|cusparse|cusolver|nccl|nvml|nvToolsExt|nvrtc|mpi|omp|curand)\w*\.h(?<!curand_kernel\.h)
    | (?:assert|complex|ctype|errno|float|inttypes|limits|locale|malloc|math|memory|pthread|setjmp|signal|stdarg)\.h
    | (?:stdbool|stddef|stdint|stdio|stdlib|string|strings|time|unistd|wchar|getopt|fcntl|dlfcn|immintrin)\.h
    | helper_(?!math)\w+\.h(?:pp)? (?# of those that come with the samples one is for device code)
    | [a-z_]+ (?# the headers of the C++ library have no extension)
    """
)
_HOST_PART = re.compile(rb"cub/(?:device/.*|util_allocator\.cuh)")  # of a library for device code
_IN_CUDA = re.compile(rb"\bcuda\s*::")
# Headers that cost time, or that NVRTC may not find, are kept only if device code uses their declarations.
_ON_DEMAND = (
    (re.compile(rb"cub/.*"), re.compile(rb"\bcub\b")),
    (re.compile(rb"thrust/.*"), re.compile(rb"\bthrust\b")),
    (re.compile(rb"cuda\.h"), re.compile(rb"\bCU[a-z]\w+")),
    (re.compile(rb"mma\.h"), re.compile(rb"\bwmma\b")),
    (re.compile(rb"cooperative_groups(?:\.h|/.*)"), re.compile(rb"\bcooperative_groups\b")),
    (re.compile(rb"curand_kernel\.h"), re.compile(rb"\bcurand")),
    (re.compile(rb"cuda/.*"), _IN_CUDA),
)
_FOR_DEVICE = re.compile(rb"cuda/.*|mma\.h|cooperative_groups(?:\.h|/.*)")
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_INCLUDE = re.compile(rb'\s*#\s*include\s*(?:<([^>\n]*)>|"([^"\n]*)")')
_PRAGMA = re.compile(rb"\s*#\s*pragma\b")
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_TYPES = frozenset((b"struct", b"class", b"union", b"enum"))
_ALIGNED = frozenset((b"__align__", b"alignas"))
_CONSTANT = frozenset((b"constexpr", b"consteval"))
_FIXED = frozenset((b"virtual", b"override", b"final"))
_ATTRIBUTE = re.compile(rb"[A-Z][A-Z0-9_]{3,}")  # a macro in a function's head, of which it is not known what it says
_BASES = re.compile(rb"\b(?:struct|class)\b[^;{}()=:]*(?:::[^;{}()=:]*)*:(?!:)([^;{}()]*)\{")
_BEFORE_TYPE = frozenset((b"template", b"static", b"inline", b"const", b"constexpr", b"extern", b"export"))


class _Role(Enum):
    """The treatment of a declaration."""

    DEVICE = auto()  # kept, with all that it mentions
    HOST = auto()  # blanked
    EITHER = auto()  # kept if it needs nothing of the host
    ON_DEMAND = auto()  # kept if device code mentions it


@dataclass(slots=True)
class _Part:
    """A declaration with the facts that decide on its treatment."""

    span: Span
    role: _Role
    names: set[bytes]
    mentions: set[bytes]
    needs_host: bool
    blanks: list[Span] = field(default_factory=list[Span])


@dataclass(frozen=True, slots=True)
class Slice:
    """The device code of a file.

    Attributes:
        text: the file with its host code replaced by spaces.
        spared: names that were cut though device code could have them, for none in the file mentions them.
        unused: the words that would have kept the includes of headers which device code can use.
    """

    text: str
    spared: frozenset[bytes]
    unused: tuple[re.Pattern[bytes], ...]

    def wanted(self, words: frozenset[bytes]) -> frozenset[bytes]:
        """Return those of `words` on account of which more would have been kept."""
        return self.spared & words | {word for word in words for use in self.unused if use.search(word)}


def slice_device(text: str) -> str:
    """Return `text` with host code replaced by spaces, so that NVRTC can compile the rest.

    Kept are `__global__` and `__device__` functions, `__constant__` and `__device__` variables, explicit instantiations
    of kernels, macros, the headers that device code can use, and types, aliases, constants and `constexpr` functions
    that device code mentions or that need nothing of the host. The slice has the same number of UTF-8 bytes, and every
    line and column of the rest is unchanged. It is meant for `--device-as-default-execution-space`, because member
    functions of kept types and `constexpr` functions carry no annotation.

    A kernel that itself uses types of PyTorch stays and will not compile. The
    instances and device functions for such types (`template <> __device__ float load(at::Half)`) are dropped.
    """
    return device_slice(text).text


def device_slice(
    text: str,
    elsewhere: frozenset[bytes] = frozenset(),
    device_macros: frozenset[bytes] = frozenset(),
    bases: frozenset[bytes] | None = None,
    asked: frozenset[bytes] = frozenset(),
) -> Slice:
    """Return the slice that `slice_device` describes, of a file or a header.

    Args:
        text: its text.
        elsewhere: words of the device code of other files; they keep what they name and what needs nothing of the host.
        device_macros: those of other files, see `find_device_macros`.
        bases: for a bare slice the classes that others derive from, see `find_bases`. It has only device code and what
            this mentions, and of types no member functions that are the host's alone.
        asked: identifiers in the template instances that are asked for; they count as the device code's.
    """
    data = text.encode()
    if text.startswith("\ufeff"):  # nvcc accepts a byte order mark, NVRTC does not
        data = data.replace(codecs.BOM_UTF8, b"   ", 1)
    code = code_only(data)
    read = outline(data)
    knife = _Knife(data, code, find_macros(data, read.directives), device_macros, bases)
    own = any(_is_own_include(data[d.start : d.end]) for d in read.directives)
    blanks, spared = knife.cut(read.declarations, own, elsewhere, asked)
    out = bytearray(data)
    for span in blanks:
        _blank(out, span)
    pragmas: list[Span] = []
    for directive in read.directives:
        line = data[directive.start : directive.end]
        if not _PRAGMA.match(line):
            out[directive.start : directive.end] = line
        elif any(span.holds(directive) for span in blanks):
            pragmas.append(directive)
    for span in pragmas:
        _blank(out, span)
    unused = _cut_includes(data, out, read.directives, elsewhere, bare=bases is not None)
    return Slice(out.decode(), spared, unused)


def find_device_macros(texts: Iterable[str]) -> frozenset[bytes]:
    """Return the names of the macros in some files that mean `__device__`, `__global__` and the like."""
    found = (match for text in texts for match in _DEFINE.finditer(text.encode()))
    return frozenset(match[1] for match in found if _DEVICE.search(match[2]))


def find_bases(texts: Iterable[str]) -> frozenset[bytes]:
    """Return the names of the classes that others derive from in some files; rather too many than too few."""
    lists = (found[1] for text in texts for found in _BASES.finditer(without_comments(text.encode())))
    return frozenset(name for one in lists for name in _IDENTIFIER.findall(one))


def words_of(text: str) -> frozenset[bytes]:
    """Return the identifiers in a text, directives included and comments aside, and `cuda::` for that namespace."""
    code = without_comments(text.encode())
    return frozenset(_IDENTIFIER.findall(code)) | ({b"cuda::"} if _IN_CUDA.search(code) else set())


def same_code(sliced: str) -> str:
    """Return a text that is equal for all slices that compile to the same, line information included.

    Comments are left out, and blanks at the end of lines: a comment behind a statement, or instead of another, moves
    nothing.
    """
    lines = without_comments(sliced.encode()).decode().split("\n")
    return "\n".join(line.rstrip() for line in lines).rstrip()


def is_cut(header: str) -> bool:
    """Return True if the include of a header is cut from every slice, as that of a host header is."""
    return _HOST_HEADER.fullmatch(header.encode()) is not None


def _blank(out: bytearray, span: Span) -> None:
    out[span.start : span.end] = blanked(bytes(out[span.start : span.end]))


def _is_own_include(line: bytes) -> bool:
    """Return True if this directive includes a header of the user's own."""
    match = _INCLUDE.match(line)
    return bool(match and match[2] and not _HOST_HEADER.fullmatch(match[2]))


def _cut_includes(
    data: bytes, out: bytearray, directives: Iterable[Span], elsewhere: frozenset[bytes], *, bare: bool
) -> tuple[re.Pattern[bytes], ...]:
    """Blank the includes of host headers, and of device headers that nothing in `out` needs, and no word `elsewhere`.

    Returns the uses for which the latter would have been kept.
    """
    unused: list[re.Pattern[bytes]] = []
    includes = [(d, m[1] or m[2] or b"") for d in directives if (m := _INCLUDE.match(data, d.start, d.end))]
    for directive, _ in includes:
        _blank(out, directive)
    kept = code_only(bytes(out))
    own = any(_is_own_include(data[d.start : d.end]) for d, _ in includes)
    for directive, header in includes:
        if bare and _HOST_PART.fullmatch(header):
            continue
        need = next((words for names, words in _ON_DEMAND if names.fullmatch(header)), None)
        if own and _FOR_DEVICE.fullmatch(header):  # the user's header may use it
            need = None
        if need is not None and not need.search(kept) and not any(map(need.search, elsewhere)):
            unused.append(need)
        elif need is not None or not _HOST_HEADER.fullmatch(header):
            out[directive.start : directive.end] = data[directive.start : directive.end]
    return tuple(unused)


class _Knife:
    """Decides which declarations of one file to keep."""

    def __init__(
        self,
        data: bytes,
        code: bytes,
        macros: dict[bytes, Macro],
        device_macros: frozenset[bytes],
        bases: frozenset[bytes] | None,
    ) -> None:
        self.data, self.code, self.macros, self.device_macros = data, code, macros, device_macros
        self.bases, self.bare = bases or frozenset(), bases is not None
        if self.bare:
            self.code = _ACCESSOR_OF.sub(lambda scope: blanked(scope[0]), code)

    def cut(
        self,
        declarations: Iterable[Declaration],
        own_headers: bool,
        elsewhere: frozenset[bytes],
        asked: frozenset[bytes],
    ) -> tuple[list[Span], frozenset[bytes]]:
        """Return the spans to blank, and the names in them that device code elsewhere could have."""
        parts = [self.part(made, own_headers) for made in declarations]
        optional = [p for p in parts if p.role in (_Role.EITHER, _Role.ON_DEMAND)]
        lost_names = {name for part in parts if part.role is _Role.HOST for name in part.names}
        free = [p for p in optional if p.mentions.isdisjoint(lost_names - p.names)]
        free = [p for p in free if not self.may_need_host(p)]
        wanted = [p for p in free if not elsewhere.isdisjoint(p.names)]
        instances = _Part(Span(0, 0), _Role.DEVICE, set(), set(asked), False)
        demanded = _closure(
            [instances, *(p for p in parts if p.role is _Role.DEVICE), *wanted],
            [p for p in optional if not any(p is w for w in wanted)],
            lambda user, used: not user.mentions.isdisjoint(used.names),
        )
        kept_names = {name for part in demanded for name in part.names}
        left = [p for p in parts if not any(p is d for d in demanded)]
        loose = [p for p in left if p.role is _Role.EITHER]
        host = [p for p in left if p.role in (_Role.HOST, _Role.ON_DEMAND)]
        host += [p for p in loose if p.needs_host or (self.bare and p.names)]
        for part in host:
            part.names -= kept_names
        lost = _closure(host, loose, lambda used, user: not user.mentions.isdisjoint(used.names - user.names))
        gone = {id(p) for p in lost} - {id(p) for p in demanded}
        spared = frozenset(name for p in free if id(p) in gone for name in p.names)
        return [span for part in parts for span in ([part.span] if id(part) in gone else part.blanks)], spared

    def may_need_host(self, part: _Part) -> bool:
        """Return True if other files are not to be offered an optional part, since it may use the host's functions."""
        if self.bare and part.role is _Role.EITHER:
            return part.needs_host
        return _MAYBE_HOST.search(self.code, part.span.start, part.span.end) is not None

    def part(self, made: Declaration, own_headers: bool) -> _Part:
        span, head = made.span, made.head
        if (call := made.macro_call) is not None:
            return self.macro_part(made, call, own_headers)
        code = self.code[span.start : span.end]
        names, blanks = declared(made, code), list[Span]()
        if is_type(made):
            blanks = self.unmarked_members(made) if self.bare else self.host_members(made)
            for gone in blanks:
                at = gone.start - span.start
                code = code[:at] + blanked(code[at : gone.end - span.start]) + code[gone.end - span.start :]
        role = self.role(made, code)
        if role is _Role.EITHER and (blanks or (is_type(made) and self.has_functions(made))):
            role = _Role.ON_DEMAND  # host code unless device code mentions it
        mentions = self.mentions(code)
        if head and head[0].text in (b"using", b"namespace") and not (b"=" in made.words and head[0].text == b"using"):
            role = _Role.HOST if mentions & _HOST_NAMESPACES else _Role.DEVICE
            if role is _Role.DEVICE and head[0].text == b"using" and b"namespace" not in made.words:
                role = _Role.EITHER
                names = names if self.bare else set()  # `using ops::run;` is dropped together with its target
        elif _TORCH.search(code) and not self.is_worth_keeping(made, role, code):
            role = _Role.HOST
        if self.bare and any(token.text.startswith(b"operator") for token in head):
            names = set()  # nothing mentions an operator by its name
        return _Part(span, role, names, mentions, bool(_HOST.search(code)), blanks)

    def is_worth_keeping(self, made: Declaration, role: _Role, code: bytes) -> bool:
        """Return True to keep a declaration that uses PyTorch and cannot compile: a kernel, or one that does so in
        its body.
        """
        if role is not _Role.DEVICE:
            return False
        head = code[: made.body.start - made.span.start] if made.body else code
        is_kernel = made.body is not None and b"__global__" in self.head_words(made)
        return is_kernel or is_type(made) or not _TORCH.search(head)

    def macro_part(self, made: Declaration, call: bytes, own_headers: bool) -> _Part:
        """Return a macro call, treated as its expansion; one of an unknown macro may come from the user's own
        header.
        """
        code = self.code[made.span.start : made.span.end]
        if call in self.macros:
            expansion = expand(self.data[made.span.start : made.head[1].end], self.macros)
            expansion += b"{}" if made.body else b""
            declarations = outline(expansion).declarations
            roles = {self.role(d, expansion[d.span.start : d.span.end]) for d in declarations}
            order = (_Role.DEVICE, _Role.EITHER, _Role.ON_DEMAND, _Role.HOST)
            role = next((r for r in order if r in roles), _Role.EITHER)
            words = set(_IDENTIFIER.findall(expansion))
            names = words
            if self.bare:
                names = {name for d in declarations for name in declared(d, expansion[d.span.start : d.span.end])}
            return _Part(made.span, role, names, words | self.mentions(code), bool(_HOST.search(expansion)))
        keep = own_headers and made.body is None and not _HOST_MACRO.fullmatch(call) and not _HOST.search(code)
        role = _Role.EITHER if keep or _DEVICE_MACRO.fullmatch(call) else _Role.HOST
        return _Part(made.span, role, set(), self.mentions(code), False)

    def role(self, made: Declaration, code: bytes) -> _Role:
        """Return a declaration's role by its own words; `code` is its text without comments."""
        words = self.head_words(made)
        if not words - {b";"}:
            return _Role.DEVICE
        if _OF_A_CLASS.match(code):
            return _Role.HOST
        if words & _DEVICE_WORDS or (is_type(made) and (_DEVICE.search(code) or self.names_device_macro(code))):
            return _Role.DEVICE
        if b"__attribute__" in words and made.body and _DEVICE.search(code, 0, made.body.start - made.span.start):
            return _Role.DEVICE
        if any(map(self.is_device_macro, made.words)):
            return _Role.DEVICE
        if is_type(made) or words & {b"using", b"typedef", b"concept", b"static_assert", b"asm", b"namespace"}:
            return _Role.EITHER
        if made.declarator is not None:
            return _Role.EITHER if words & {b"constexpr", b"consteval"} else _Role.HOST
        if b"constexpr" in words:
            return _Role.EITHER
        if b"const" in words and b"extern" not in words:
            return _Role.ON_DEMAND if b"(" in code else _Role.EITHER
        return _Role.HOST

    def names_device_macro(self, code: bytes) -> bool:
        """Return True if a text has macros that mean `__device__`, those of other files by their names."""
        words = set(_IDENTIFIER.findall(code))
        return any(
            not _DEVICE_WORDS.isdisjoint(_IDENTIFIER.findall(self.macros[word].body))
            if word in self.macros
            else self.is_device_macro(word)
            for word in words
        )

    def is_device_macro(self, word: bytes) -> bool:
        """Return True if a word is a macro of another file that means `__device__`, as that file or its name says."""
        known = word in self.device_macros or _DEVICE_MACRO.fullmatch(word) is not None
        return known and word not in self.macros

    def head_words(self, made: Declaration) -> set[bytes]:
        """Return the words of a head and of the macros among them."""
        words = set(made.words)
        for name in made.words & self.macros.keys():
            words |= set(_IDENTIFIER.findall(expand(name, self.macros)))
            # A call that opens a list of values, which another closes, is no macro call by itself.
            words |= set(_IDENTIFIER.findall(self.macros[name].body)) & _DEVICE_WORDS
        return words

    def mentions(self, code: bytes) -> set[bytes]:
        """Return the identifiers in a text and in the macros that it uses."""
        found: set[bytes] = set()
        fresh = set(_IDENTIFIER.findall(code))
        while fresh:
            found |= fresh
            bodies = (self.macros[name].body for name in fresh & self.macros.keys())
            fresh = {word for body in bodies for word in _IDENTIFIER.findall(body)} - found
        return found

    def has_functions(self, made: Declaration) -> bool:
        """Return True if a type has member functions with a body."""
        return any(member.declarator is not None and member.body is not None for member in members_of(self.data, made))

    def host_members(self, made: Declaration) -> list[Span]:
        """Return the member functions of a type that only the host can compile, such as a constructor from a tensor or
        one that says `__host__` alone, and those that call them.
        """
        if not _HOST_OR_SAID.search(self.code, made.span.start, made.span.end):
            return []
        found: list[Span] = []
        lost: set[bytes] = set()
        left = [member for member in members_of(self.data, made) if not self.head_words(member) & _DEVICE_WORDS]
        left = [one for one in left if one.declarator is not None and not any(map(self.is_device_macro, one.words))]
        while fresh := [member for member in left if self.is_lost(member, lost)]:
            left = [member for member in left if member not in fresh]
            found += [member.span for member in fresh]
            lost |= {member.head[member.declarator[0]].text for member in fresh if member.declarator is not None}
        return found

    def unmarked_members(self, made: Declaration) -> list[Span]:
        """Return the member functions of a type that do not say `__device__`, which device code cannot call.

        Those that make constants without the host's functions stay, and those that a type's layout depends on: virtual
        functions, and constructors and destructors of a class that others derive from. Data members always stay.
        """
        found: list[Span] = []
        names, lost = declared(made, b""), self.host_members(made)
        for member in members_of(self.data, made):
            if is_type(member):
                found += self.unmarked_members(member)
            declarator = member.declarator
            if declarator is None or not _is_function(member):
                continue
            words = self.head_words(member)
            makes_constants = words & _CONSTANT and member.span not in lost
            fixed = words & (_DEVICE_WORDS | _FIXED) or any(map(self.is_device_macro, member.words)) or makes_constants
            told = any(token.text == b"=" for token in member.head[declarator[1] :])  # `= default`, `= delete`, `= 0`
            named = member.head[declarator[0]].text
            makes = named in names and not names.isdisjoint(self.bases)
            if not (fixed or told or makes or any(map(_ATTRIBUTE.fullmatch, words - {named}))):
                found.append(member.span)
        return found

    def is_lost(self, member: Declaration, lost: set[bytes]) -> bool:
        """Return True if a member function uses the host's functions, or calls one that is lost."""
        span = member.span
        if b"__host__" in self.head_words(member) or _HOST.search(self.code, span.start, span.end):
            return True
        body = member.body
        return body is not None and not lost.isdisjoint(_IDENTIFIER.findall(self.code, body.start, body.end))


def members_of(data: bytes, made: Declaration) -> tuple[Declaration, ...]:
    """Return the declarations in the braces of a type in a text."""
    braces = next((token for token in made.head if token.text == b"{}"), None)
    return outline(data, Span(braces.start + 1, braces.end - 1)).declarations if braces is not None else ()


def says_device(code: bytes, macros: frozenset[bytes]) -> bool:
    """Return True if a text says `__device__` or the like, itself or by one of these macros or one of such a name."""
    words = _IDENTIFIER.findall(code_only(code))
    return _DEVICE.search(code) is not None or any(word in macros or _DEVICE_MACRO.fullmatch(word) for word in words)


def _is_function(member: Declaration) -> bool:
    """Return True if a member is a function beyond doubt, and no `std::function<void(int)> f;` or `int (*f)(int);`."""
    if (declarator := member.declarator) is None or member.words & {b"typedef", b"using", b"static_assert", b"friend"}:
        return False
    texts = [token.text for token in member.head]
    before, after = texts[: declarator[1]], texts[declarator[1] + 1 :]
    named = declarator[0] == declarator[1] - 1 and _IDENTIFIER.fullmatch(texts[declarator[0]])
    return (
        bool(named or b"operator" in before)
        and before.count(b"<") == before.count(b">")
        and (not after or after[0] in (b";", b":", b"->", b"const", b"noexcept"))
    )


def _closure(roots: list[_Part], rest: list[_Part], leads: Callable[[_Part, _Part], bool]) -> list[_Part]:
    """Return `roots` and those of `rest` that they lead to, directly or not."""
    reached, waiting, todo = list(roots), list(rest), list(roots)
    while todo:
        source = todo.pop()
        fresh = [part for part in waiting if leads(source, part)]
        waiting = [part for part in waiting if not any(part is f for f in fresh)]
        reached += fresh
        todo += fresh
    return reached


def is_type(made: Declaration) -> bool:
    """Return True if this defines or declares a struct, class, union or enum."""
    texts = [token.text for token in made.head]
    while len(texts) > 1 and texts[0] in _ALIGNED and texts[1] == b"()":  # `__align__(8) struct Pair {`
        texts = texts[2:]
    first = next((text for text in texts if text not in _BEFORE_TYPE), b"")
    if b"extern" in made.words and b"{}" not in made.words:
        return False  # a variable of such a type: `extern struct point* origin;`
    return first in _TYPES and made.body is None and (b"{}" in made.words or made.declarator is None)


def declared(made: Declaration, code: bytes) -> set[bytes]:
    """Return the names that a declaration introduces; rather too many than too few."""
    texts = [token.text for token in made.head]
    if is_type(made):
        if b"enum" in texts and b"class" not in texts and b"struct" not in texts:
            return set(_IDENTIFIER.findall(code))
        start = next(i for i, text in enumerate(texts) if text in _TYPES)
        end = next((i for i in range(start, len(texts)) if texts[i] in (b"{}", b":", b";", b"<")), len(texts))
        return set([t for t in texts[start + 1 : end] if _IDENTIFIER.fullmatch(t) and t != b"final"][-1:])
    if b"typedef" in texts:
        return set(_IDENTIFIER.findall(code)) if b"()" in texts else set(texts[-2:-1])
    if b"using" in texts or b"concept" in texts:
        word = texts.index(b"using" if b"using" in texts else b"concept")
        return set(texts[word + 1 : word + 2]) if b"=" in texts else set(texts[-2:-1])
    if (declarator := made.declarator) is not None:
        return {made.head[declarator[0]].text}
    ends = (b"=", b"[]", b"{}", b";", b",")
    return {a for a, b in pairwise(texts) if b in ends and _IDENTIFIER.fullmatch(a)}
