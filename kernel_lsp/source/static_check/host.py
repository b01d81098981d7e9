"""Checks the text of extensions' C++ host code for violations that the built library's symbols do not show.

A library's undefined symbols decide which functions host code may call (`compiler.host.symbols`). The text is checked
for assembler labels, host instructions, calls of computed addresses, Python reached from C++, and the harness's own
names, written or pasted by macros. Unusual headers and calls are notes.
"""

import re
from collections.abc import Iterator

from kernel_lsp.source.outline import code_only, without_comments
from kernel_lsp.source.static_check import policy
from kernel_lsp.source.static_check.addresses import computed_calls
from kernel_lsp.source.static_check.compiler_extensions import unusual_extensions
from kernel_lsp.source.static_check.findings import Finding, Note, Violation
from kernel_lsp.source.static_check.pasting import TooManyMacrosError, pasted_texts
from kernel_lsp.source.static_check.spelling import joined, misleading, unescaped

_INCLUDE = re.compile(r"^[ \t]*#\s*include\s*<([^>]+)>", re.MULTILINE)
_USUAL_HEADERS = re.compile(
    r"""(?x) (?: cuda | cublas | cudnn | cufft | cusparse | cusolver | cooperative_groups | cub/ | curand | thrust/ |
    cute/ | cutlass/ | mma\.h | torch/ | ATen/ | c10/ | pybind11/ | nv/ | sm_ | vector_ | device_ ) .* |
    algorithm | any | array | assert\.h | atomic | bit | cassert | cerrno | cfloat | charconv | chrono |
    cinttypes | climits | cmath | compare | complex | concepts | cstddef | cstdint | cstdio | cstdlib | cstring
    | deque | driver_types\.h | errno\.h | exception | float\.h | format | functional | initializer_list |
    inttypes\.h | iomanip | ios | iosfwd | iostream | istream | iterator | limits | limits\.h | list | map |
    math\.h | math_constants\.h | math_functions\.h | memory | mutex | new | numbers | numeric | omp\.h |
    optional | ostream | queue | random | ranges | ratio | set | shared_mutex | source_location | span | sstream
    | stack | stdbool\.h | stddef\.h | stdexcept | stdint\.h | stdio\.h | stdlib\.h | string | string\.h |
    string_view | system_error | time\.h | ctime | tuple | type_traits | typeindex | typeinfo | unordered_map |
    unordered_set | utility | variant | vector | version"""
)
_FUNCTIONS = r"""
    cu(?:da)?ThreadExchangeStreamCaptureMode | cu(?:da)?CtxResetPersistingL2Cache |
    cu(?:da)?(?:Device|Ctx)SetLimit | cudaDeviceReset | cu(?:da)?(?:Device|Ctx)SetCacheConfig | dlm?open |
    dlv?sym | dl_iterate_phdr | memfd_create | mprotect | mseal | pkey_mprotect | prctl | process_vm_\w+ |
    pthread_create | ptrace"""
_PYTHON = r"""
    _?Py_?(?:Code|Compile|Eval|Frame|Function|GC|Import|Interpreter|Marshal|Run|Sys|Thread|Unstable)\w*_?\w*
    | _?PyObject_(?:Get|Set|Del|Has|Generic|Lookup)\w* | _?PyObject_(?:Call|Vectorcall)\w* | PyModule_GetDict
    | _?PyType_\w+ | Py_TYPE | _?Py(?:CFunction|Descr|InstanceMethod|Member|Method|State|Vectorcall|Wrapper)_\w+
    | PyCapsule_Import | PyException_\w+ | PyErr_(?:Fetch|Get\w+)"""
_OBJECTIONS = re.compile(
    rf"""(?x)\b(?: {_FUNCTIONS} | {_PYTHON} )\b(?=\s*[(){{}};,<\s])
    | \b(?:py|pybind11)\s*::\s*(?:eval\w*|exec|globals|module_?\s*::\s*import)\b(?=\s*[(<])
    | \bmodule_\s*::\s*import\b | \b(?:kernel_lsp|KERNEL_LSP_\w+)\b"""
)
_INNER = re.compile(
    r"""(?x)\b(?:_GLOBAL_OFFSET_TABLE_ | _DYNAMIC | __ehdr_start | __executable_start | _r_debug | _rtld_global\w*
    | __builtin_(?:frame|return)_address | __builtin_extract_return_addr)\b
    | (?:->|\.)\s*(?:(?:tp_(?:bases?|cache|dict|mro|subclasses)|ob_type)\b | tp_[a-z]\w*\s*(?:\(|=(?!=)))
    | \b(?:py|pybind11)\s*::\s*(?:get|set|del)attr\b
    | (?:->|\.)\s*_(?:fileno|chain|IO_\w+)\b
    | \b(?:get_(?:local_)?internals|function_record|device_guard_impl_registry)\b
    | \bCUDACachingAllocator\s*::\s*(?:allocator|recordHistory)\b
    | (?:->|\.)\s*(?:attach(?:AllocatorTraceTracker|OutOfMemoryObserver)|recordHistory)\b
    | \b(?:(?:obj|str)_attr|generic)_accessor\b | \baccessor_policies\b | \bLibrary\s*::\s*(?:DEF|FRAGMENT|IMPL)\b"""
)
"""Ways to tables of the loader, Python, pybind11 and torch, the stack, open files, torch's allocator, and operators
registered by hand."""
_READS_A_FILE = re.compile(r"^[ \t]*#\s*(?:embed\b|include(?:_next)?\s*(?:[\"<]/|[A-Za-z_]))", re.MULTILINE)
_REGISTERS = re.compile(r"\bTORCH_LIBRARY(?:_IMPL|_FRAGMENT)?\s*\(\s*(\w+)\s*,")
_OF_TORCH = re.compile(r"_|aten|c10\w*|_c10\w*|prims?|rngprims|quantized|mkldnn\w*|inductor|profiler")
_DEFINED_AS = r"^[ \t]*#[ \t]*define[ \t]+{}[ \t]+(\w+)"
_ENTRY = re.compile(r"\b(cu(?:da)?Get(?:DriverEntryPoint|ProcAddress)\w*)\b(?!_t\b)")
_OPENING = re.compile(r"\s*\(")
_ENTRIES = re.compile(
    r"cu(?:TensorMap\w+|\w*Get(?:Attributes?|Count|Error\w+|Name|Properties|Version)\w*|Launch(?:Cooperative)?Kernel\w*"
    r"|(?:Func|Kernel|Library|Module|Multicast|Occupancy)\w+)"
)
"""Functions of the driver that host code may ask for by name."""
_COMPUTED_ATTRIBUTE = re.compile(
    r"""(?xm)(?:\.|->)\s*attr\s*\(\s*(?![\s"]) | (?<![\w.:>])(?:get|set|del)attr\s*\( | ::\s*attr\b
    | ^[ \t]*\#[ \t]*define\b.*\battr\b(?!\s*\(\s*")"""
)
_BINDS_PYTHON = re.compile(r"\b(?:py|pybind11)\s*::|\bPyObject\b")
_NOTES = re.compile(
    r"""(?x)\bstd\s*::\s*(?:async|jthread|thread|[io]?fstream|filesystem)\b
    | (?<![.\w:>])(?:::\s*)?(?:_?_exit|exec[lv]\w*|fopen|fork|getenv|kill|mmap|open|popen|setenv|sigaction|signal
    | syscall|system|vfork)\b(?=\s*\()"""
)
_ATTRIBUTE = re.compile(r"\battr\s*\(")
_LEADS_OUT = re.compile(r"(?:_|modules|sys|os|builtins|gc)\w*")
_ASSEMBLER = re.compile(r"\b(?:__asm__|__asm|asm)\b(?P<kinds>(?:\s*\b(?:__volatile__|volatile|goto|inline)\b)*)\s*\(")
_STRING = re.compile(r'\s*(?:u8|[uUL])?"((?:\\.|[^"\\\n])*)"')
_LABEL = re.compile(r"\s*[\w.$@]+\s*")
_OPENS_A_STATEMENT = re.compile(r"(?:[{};:]|\b(?:else|do))\s*\Z|\A\s*\Z")
_OF_THE_HOST = re.compile(
    r"""(?x)\b(?:syscall|sysenter|int\s+\$|jmp|lea[ql]?|mov[bwlq]|push[ql]?|pop[ql]?|svc)\b | %%?[re]?[abcd]x\b
    | %%?r(?:ip|[sd]i|[sb]p)\b | @(?:PLT|GOT) | %%?[fg]s\b
    | \.(?:byte|[248]byte|value|short|long|int|quad|octa|ascii|asciz|string|incbin|equ|text|data|section|pushsection
    | globl|symver|hidden)\b(?![.:])"""
)
"""Instructions, registers and directives of x86 and ARM that PTX does not have."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENTS = re.compile(r"[;\n{}]|(?<!:):(?!:)")
_GUARD = re.compile(r"@!?%{0,2}\w+\s+")
_OF_PTX = re.compile(
    r"""(?xs)(?!\w+\.(?:s|d8|d32)\b|b\.) [a-z]\w*\.[\w.:]+ .*  # a type or a kind behind a dot, as none of x86 has
    | (?:bra|brkpt|call\s*\(|exit|ret|trap)\b .* | (?:pause|yield|nop|[lms]fence|rdtscp?)
    | \.(?:align|branchtargets|callprototype|calltargets|const|global|loc|local|param|pragma|pred|reg|shared)\b .*
    | [^\w.] .* | \d .* | [\w$%]+ (?:\s*[,|]\s*[\w$%]+)* \s* ,?"""  # the last are operands and labels
)
"""A statement of PTX, or part of one; and how a host waits."""
_OF_ANY_STRING = re.compile(
    r"""(?x)(?:\A|[;\n])\s*(?:(?:syscall|sysenter|svc\s+\#?\d+)\s*(?:[;\n]|\Z) | int\s+\$0x80
    | \.(?:byte|[248]byte|value|octa|h?word|short|long|int|quad|fill|dcb?\.\w|[us]leb128|inst|incbin)
      \s+(?:0x|\d|\\?"))"""
)
"""Such instructions in a string that a macro may pass to the assembler."""
_SPECIAL = re.compile(r"__[a-z]\w*__")
"""Names by which objects of Python lead to functions, modules and memory of others."""


def cpp_findings(text: str) -> tuple[Finding, ...]:
    """Return the violations and notes in the text of C++ host code, in order of its lines."""
    found = _of_reading(text)
    if (reading := joined(text)) != text:
        known = {what for _, what, _ in found}
        found |= {one for one in _of_reading(reading) if one[1] not in known}
    return tuple(Violation(line, what) if rejects else Note(line, what) for line, what, rejects in sorted(found))


def _of_reading(text: str) -> set[tuple[int, str, bool]]:
    """Return the findings of a text: their lines, what they are, and True for violations."""
    data = text.encode(errors="replace")
    plain = data.decode("latin-1")  # one character per byte, as in the others
    code, kept = (blank(data).decode("latin-1") for blank in (code_only, without_comments))
    found = [*_of_words(code), *_of_attributes(code, kept), *_of_assembler(code, kept), *_of_strings(kept)]
    found += [*_of_pasted_words(code), *_of_inner_ways(code, kept)]
    found += [(at, what, True) for at, what in misleading(plain, code, kept)]
    return {(plain.count("\n", 0, at) + 1, what, rejects) for at, what, rejects in found}


def _of_words(code: str) -> Iterator[tuple[int, str, bool]]:
    for match in _INCLUDE.finditer(code):
        if not _USUAL_HEADERS.fullmatch(match[1].strip()):
            yield match.start(), f"includes `<{match[1].strip()}>`", False
    for pattern, rejects in ((_OBJECTIONS, True), (_NOTES, False)):
        for match in pattern.finditer(code):
            written = "".join(match[0].split())
            yield match.start(), f"uses `{written}`", rejects


def _of_inner_ways(code: str, kept: str) -> Iterator[tuple[int, str, bool]]:
    """Yield ways to functions and memory of others that are neither calls nor attributes; `kept` has the strings."""
    for match in _INNER.finditer(code):
        yield match.start(), f"reaches for `{''.join(match[0].split())}`", True
    yield from ((at, what, True) for at, what in (*unusual_extensions(code), *computed_calls(code)))
    for match in _READS_A_FILE.finditer(kept):
        yield match.start(), "reads a file while it is built", True
    for match in _ENTRY.finditer(code):
        name = _template(kept, opening.end()) if (opening := _OPENING.match(kept, match.end())) else None
        if name is None or not _ENTRIES.fullmatch(name):
            yield match.start(), f"asks the driver for `{name or 'a function that its text does not name'}`", True
    for match in _REGISTERS.finditer(code):
        name, left = match[1], 4
        while (said := re.search(_DEFINED_AS.format(name), code, re.MULTILINE)) is not None and left:
            name, left = said[1], left - 1
        if _OF_TORCH.fullmatch(name) or not left:
            yield match.start(), f"registers operators of `{name}`", True
    if _BINDS_PYTHON.search(code):
        for match in _COMPUTED_ATTRIBUTE.finditer(kept):
            yield match.start(), "reaches for an attribute of a Python object by a computed name", True


def _of_attributes(code: str, kept: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the attributes of Python objects that C++ asks for by name and that lead out of the file."""
    for match in _ATTRIBUTE.finditer(code):
        name = _template(kept, match.end()) or ""
        if _LEADS_OUT.fullmatch(name) or policy.is_refused(name):
            yield match.start(), f"reaches for `{name}` of a Python object", True
    for match in _STRING.finditer(kept):
        if (name := _SPECIAL.fullmatch(_template(kept, match.start()) or "")) is not None:
            yield match.start(), f"reaches for `{name[0]}` of a Python object", True


def _of_assembler(code: str, kept: str) -> Iterator[tuple[int, str, bool]]:
    """Yield assembler labels and host instructions; `kept` is `code` with its strings."""
    for match in _ASSEMBLER.finditer(code):
        template = _template(kept, match.end())
        before = code[max(0, match.start() - 80) : match.start()]
        is_statement = bool(match["kinds"].strip()) or _OPENS_A_STATEMENT.search(before) is not None
        if not is_statement and (template is None or _LABEL.fullmatch(template)):
            yield match.start(), f"gives a declaration the assembler's name `{(template or '?').strip()}`", True
        elif template is None:
            yield match.start(), "runs instructions that its text does not show", False
        elif _OF_THE_HOST.search(template) or not _is_ptx(template):
            yield match.start(), "runs machine instructions on the host", True


def _of_strings(kept: str) -> Iterator[tuple[int, str, bool]]:
    """Yield instructions of the host in strings, which macros may pass to the assembler."""
    for match in _STRING.finditer(kept):
        if _OF_ANY_STRING.search((_template(kept, match.start()) or "").lower()):
            yield match.start(), "holds machine instructions of the host in a string", True


def _of_pasted_words(code: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the words that macros of the text put together from parts."""
    try:
        for start, text in pasted_texts(code):
            for pattern, rejects in ((_OBJECTIONS, True), (_INNER, True), (_ENTRY, True), (_NOTES, False)):
                for match in pattern.finditer(text):
                    yield start, f"uses `{''.join(match[0].split())}`", rejects
    except TooManyMacrosError:
        yield 0, "uses more macros than can be read", True


def _is_ptx(template: str) -> bool:
    """Return True if all statements of an assembler text are PTX's, or let the host wait."""
    parts = (_GUARD.sub("", part.strip(), count=1) for part in _STATEMENTS.split(_COMMENT.sub("", template)))
    return all(_OF_PTX.fullmatch(part) for part in parts if part)


def _template(code: str, start: int) -> str | None:
    """Return the concatenated string literals that begin at `start`; None if there are none, as for a macro."""
    parts: list[str] = []
    while (match := _STRING.match(code, start)) is not None:
        parts.append(match[1])
        start = match.end()
    return unescaped("".join(parts)) if parts else None
