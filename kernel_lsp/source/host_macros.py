"""Makes the launches that macros write readable in host code, `LAUNCH(k, float)` for `k<float><<<grid, 256>>>(x)`."""

import re
from collections.abc import Collection, Sequence

from kernel_lsp.source.macros import Macro, expand, find_macros
from kernel_lsp.source.outline import outline


def with_launches_of_macros(text: str, headers: Sequence[str], templates: Collection[str]) -> str:
    """Return CUDA text and, behind it, its declarations that call macros for launches, with these expanded.

    Macros that wrap code, as a switch does its lambda, stay as they are.

    Args:
        text: the CUDA text.
        headers: texts of what it includes, whose macros are known in it.
        templates: names of kernels and launchers; a macro that names one of them counts too.
    """
    named = re.compile(
        rb"<<<|\b(?:" + b"|".join(re.escape(name.encode()) for name in templates or ("<<<",)) + rb")\s*<"
    )
    macros: dict[bytes, Macro] = {}
    for one in (*headers, text):
        if "#" in one and "define" in one:
            macros |= find_macros(one.encode(), outline(one.encode()).directives)
    launching = {name: macro for name, macro in macros.items() if macro.parameters and named.search(macro.body)}
    launching = {name: macro for name, macro in launching.items() if b"__VA_ARGS__" not in macro.body}
    if not launching:
        return text
    data = text.encode()
    called = re.compile(rb"\b(?:" + b"|".join(map(re.escape, launching)) + rb")\s*\(")
    parts = [data[made.span.start : made.span.end] for made in outline(data).declarations]
    written = [expand(part, launching).decode() for part in parts if called.search(part)]
    return "\n".join([text, *written])
