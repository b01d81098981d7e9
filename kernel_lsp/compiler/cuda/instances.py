"""Leaves out most of the instances that a CUDA file asks for by itself, where they are too many to be compiled in time.

Libraries instantiate a kernel for each type and size: `template __global__ void k<float, 256>(float*);`, or by a macro.
"""

import re
from collections import Counter

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import blanked
from kernel_lsp.source.macros import expand, find_macros
from kernel_lsp.source.outline import outline
from kernel_lsp.source.text import Lines

MOST, MOST_EACH = 40, 2
"""Instances that are all compiled; of more, those of each kernel that are."""
_INSTANCE = re.compile(rb"\btemplate\s+(?!<)[^;{}<]*\b__global__\b[^;{}<]*?(\w+)\s*<")


def with_few_instances(source: SourceFile) -> tuple[SourceFile, tuple[Diagnostic, ...]]:
    """Return a file with only the first instances of each kernel that it asks for, and a note that says so.

    The file itself is returned where there are no more than `MOST`. The others are blanked, so that nothing moves.
    """
    data = source.text.encode()
    read = outline(data)
    macros = find_macros(data, read.directives)
    asked = [
        (made.span, names)
        for made in read.declarations
        if made.body is None
        and (
            names := _INSTANCE.findall(expand(data[made.span.start : made.span.end], macros if made.macro_call else {}))
        )
    ]
    if sum(len(names) for _, names in asked) <= MOST:
        return source, ()
    text, kept, left = bytearray(data), Counter[bytes](), 0
    for span, names in asked:
        if any(kept[name] < MOST_EACH for name in names):
            kept.update(names)
        else:
            text[span.start : span.end] = blanked(data[span.start : span.end])
            left += len(names)
    line = Lines(data).position(asked[0][0].start)[0]
    message = (
        f"{left} of the instances that this file asks for were left out: at most {MOST_EACH} of each kernel are shown"
    )
    said = Diagnostic(str(source.path), line, 1, line, 1, Severity.NOTE, message)
    return SourceFile(source.path, text.decode()), (said,)
