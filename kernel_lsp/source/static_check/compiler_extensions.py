"""Finds compilers' own extensions of C++ in host code that no kernel needs: attributes and built-in functions.

Some choose where code lies or what a name calls, jump, or read and change the stack, and leave no symbol behind. So
those are known that describe, align and compute. Names are those of GCC's and Clang's manuals.
"""

import re
from collections.abc import Iterator

_ATTRIBUTES = re.compile(
    r"\b__attribute(?:__)?\s*\(\s*\((?P<gnu>(?:[^();]|\((?:[^();]|\([^();]*\))*\))*)\)"
    r"|\[\[\s*using\s+(?:gnu|clang)\s*:(?P<using>[^\[\];{}]*)\]\]"
    r"|\b(?:gnu|__gnu__|clang|_Clang)\s*::\s*(?P<scoped>\w+)"
)
_HIDDEN = re.compile(r"\b__attribute(?:__)?\b(?!\s*\(\s*\()")
_NAME = re.compile(r"(?:\A|,)\s*(\w+)")
_PARENTHESES = re.compile(r"\([^()]*\)")
_DESCRIBES = re.compile(
    r"align(?:ed|_value|stack)?|always_inline|artificial|assume(?:_aligned)?|access|alloc_(?:align|size)|cold|const(?:ructor)?"
    r"|deprecated|destructor|device(?:_builtin\w*)?|diagnose_if|error|ext_vector_type|fallthrough|flatten|format(?:_arg)?|gnu_inline"
    r"|global|host|hot|init_priority|launch_bounds|leaf|malloc|managed|may_alias|mode|nodiscard|noinline|nonnull|noreturn|nothrow"
    r"|no_sanitize\w*|not_tail_called|null_terminated_string_arg|nv_\w+|optimize|optnone|overloadable|packed|pure|returns_nonnull|scalar_storage_order"
    r"|shared|target(?:_clones)?|transparent_union|unavailable|(?:maybe_)?unused|used|vector_size|visibility|warn(?:ing|_unused\w*)|weak"
)
_BUILT_IN = re.compile(r"\b__builtin_(\w+)")
_COMPUTES = re.compile(
    r"(?:s|u)?(?:add|sub|mul)(?:l{0,2})_overflow(?:_p)?|addressof|align__|amdgcn_\w+|assume(?:_aligned)?|bit_cast|bitreverse\d+|bswap\d+|choose_expr"
    r"|(?:clr|c[lt]z|ffs|parity|popcount)(?:s|l{1,2}|g|imax)?|complex|constant_p|convertvector|cpu_(?:init|is|supports)|elementwise_\w+"
    r"|expect(?:_with_probability)?|fpclassify|has_attribute|huge_val[fl]?|inff?|is_constant_evaluated|is(?:eq|finite|greater|inf|less"
    r"|nan|normal|unordered)\w*|launder|mem\w+|nans?f?|nontemporal_\w+|object_size|offsetof|prefetch|reduce_\w+|rotate(?:left|right)\d+"
    r"|shuffle(?:vector)?|signbit\w*|source_location|speculation_safe_value|str\w+|tgmath|trap|types_compatible_p|unreachable"
    r"|va_\w+|FILE|FUNCTION|LINE|COLUMN|a?(?:cos|sin|tan)h?[fl]?|atan2[fl]?|cbrt[fl]?|ceil[fl]?|copysign\w*|exp\w{0,2}|f?abs[fl]?|floor[fl]?"
    r"|fm(?:a|ax|in|od)[fl]?|hypot[fl]?|l?l?r(?:int|ound)[fl]?|log\w{0,3}|nearbyint[fl]?|pow[fil]?|round\w*|rsqrt[fl]?|sqrt[fl]?|trunc[fl]?"
)


def unusual_extensions(code: str) -> Iterator[tuple[int, str]]:
    """Yield where host code uses an attribute or a built-in function that is not known to be harmless, and what it is.

    Args:
        code: the text without comments and strings.
    """
    for match in _ATTRIBUTES.finditer(code):
        listed = match["scoped"] or match["gnu"] or match["using"] or ""
        for name in _NAME.findall(_without_arguments(listed)):
            plain = name.removeprefix("__").removesuffix("__")
            if not _DESCRIBES.fullmatch(plain):
                yield match.start(), f"gives a declaration the attribute `{plain}`"
    for match in _HIDDEN.finditer(code):
        yield match.start(), "gives a declaration attributes that its text does not show"
    for match in _BUILT_IN.finditer(code):
        if not _COMPUTES.fullmatch(match[1]):
            yield match.start(), f"uses `{match[0]}`"


def _without_arguments(attributes: str) -> str:
    before = ""
    while before != attributes:
        before, attributes = attributes, _PARENTHESES.sub("", attributes)
    return attributes
