"""Tells which options of an extension's build may bring code that no text shows, or hide what its library does.

Options may be computed, so they are read as the request has them, not in the file's text. Those that tune a build are
known here. Any other one could start a program, read a file, or link what the symbols of the library do not tell.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.language import source_part
from kernel_lsp.source.modules import in_place

_WORDS = r"[\w.,:=+-]*"
_LIBRARY = (
    r"-l(?!\w*_static)(?:cu\w+|nv(?:rtc|ToolsExt|JitLink|jpeg|fatbin)\w*|nccl|torch\w*|c10\w*|atomic|m|dl|rt|pthread|gomp|stdc\+\+|gcc_s)"
    r"|-L[\w./@+-]+|-pthread|-fopenmp|-O\w*"
)
_OF_HOST = rf"""
    -[DU][A-Za-z_]\w*(?:=[^`$;&|<>\n]*)? | -std=(?:c|gnu)\+\+\w+ | -g\w*(?:-\d)? | -w | -v | -pipe
    | -pedantic(?:-errors)? | -rdynamic | -m[a-z][\w.=+-]* | -(?:I|isystem)[\w./@+-]+ | {_LIBRARY}
    | -W[\w+-]+(?:=[\w-]+)?  # with a comma it would be an option of the assembler or the linker
    | -f(?!auto-profile|callgraph|compare|directives|dump|exec-charset|file-prefix|input-charset|lto-p|macro|module
        |opt-info|plugin|preproc|profile|save|stack|use-ld|wide-exec|wpa)[a-zA-Z][\w.=+-]*"""
_HOST = re.compile(_OF_HOST, re.VERBOSE)
_DEVICE = re.compile(
    rf"""(?x) -{{1,2}}(?:allow-unsupported-compiler|arch|code|compress-mode|cudart|dc|default-stream|device-debug
    |diag-\w+|disable-warnings|display-error-number|dlto|expt-[\w-]+|extended[_-]lambda|extra-device-vectorization
    |fdevice-\S+|fmad|forward-unknown-to-host-compiler|ftemplate-(?:\w+-limit|depth)|ftz|gencode|generate-code
    |generate-line-info|gpu-architecture|gpu-code|keep|lineinfo|lto|m64|machine|maxrregcount|no-\w[\w-]*|prec-div
    |prec-sqrt|rdc|relocatable-device-code|res-usage|resource-usage|restrict|source-in-ptx|split-compile|std|threads
    |time|use_fast_math|verbose|G|Werror|Xcudafe|Xfatbin|Xnvlink|Xptxas|ptxas-options)(?:={_WORDS})?
    | -t\d* | {_OF_HOST}"""
)
_LINKER = re.compile(
    rf"""(?x) {_LIBRARY} | -shared | [\w./@+-]+\.so(?:\.\d+)*
    | -Wl,(?:-rpath(?:-link)?[,=][\w./$@+-]+ | --(?:no-)?as-needed | --no-undefined | --(?:start|end)-group | -O\d
        | --(?:en|dis)able-new-dtags | -Bsymbolic(?:-functions)? | -z,(?:defs|now|relro|separate-code))"""
)
_JOINED = ("-D", "-I", "-L", "-U", "-isystem", "-l")
"""Options whose value may be a word of its own, as if it were written without a space."""
_TAKES_A_WORD = re.compile(
    r"-{1,2}(?:arch|code|default-stream|diag-suppress|gencode|generate-code|gpu-architecture|gpu-code|maxrregcount"
    r"|ptxas-options|rdc|std|threads|Xcudafe|Xfatbin|Xptxas|t)"
)
_HANDS_ON = ("-Xcompiler", "--compiler-options")
_WORD = re.compile(_WORDS)
_OF_A_SHELL = re.compile(r"[`$;&|<>\n]")
_DEFINES = re.compile(r"-D([A-Za-z_]\w*)(?:=(.*))?", re.DOTALL)


def unusual_options(request: ExtensionRequest) -> tuple[str, ...]:
    """Return the options of a request that could bring or hide code, in their order."""
    found = [*_others(request.cflags, _HOST), *_others(request.cuda_cflags, _DEVICE)]
    found += [*_others(request.ldflags, _LINKER), *(path for path in request.include_paths if _OF_A_SHELL.search(path))]
    return tuple(dict.fromkeys(found))


def definitions(request: ExtensionRequest) -> str:
    """Return the macros that a request's options define, as lines of C++, so that they are read with its texts.

    Torch has a shell read options; the fast build passes them on as they are.
    """
    options = (*request.cflags, *request.cuda_cflags)
    matches = map(_DEFINES.fullmatch, dict.fromkeys((*_words(options), *options)))
    return "".join(f"#define {match[1]} {match[2] or ''}\n" for match in matches if match)


def host_texts(candidate: Candidate, requests: Sequence[ExtensionRequest]) -> tuple[str, ...]:
    """Return the texts that a Python file passes to `load_inline` and `load`, on their own lines if possible.

    Below each one stand the macros that options of its build define.
    """
    if not source_part(candidate.language).python:
        return ()
    texts = [(unit.text, definitions(request)) for request in requests for unit in request.units]
    return tuple(f"{in_place(candidate.kernel.text, text) or text}\n{macros}" for text, macros in texts)


def _others(options: Sequence[str], known: re.Pattern[str]) -> Iterator[str]:
    """Yield the options that are not known."""
    words = _words(options)
    while words:
        word = words.pop(0)
        name, _, inner = word.partition("=")
        if name in _HANDS_ON and (inner or words):
            yield from (one for one in (inner or words.pop(0)).split(",") if not _HOST.fullmatch(one))
        elif known is _DEVICE and _TAKES_A_WORD.fullmatch(word) and words and _WORD.fullmatch(words[0]):
            words.pop(0)
        elif not known.fullmatch(word):
            yield word


def _words(options: Sequence[str]) -> list[str]:
    """Return the words of options: torch hands them to a shell, so that one text may hold several."""
    found: list[str] = []
    for option in options:
        try:
            split = shlex.split(option)
        except ValueError:  # a quote that nothing closes
            split = [option]
        for word in split:
            if found and found[-1] in _JOINED:
                found[-1] += word
            else:
                found.append(word)
    return found
