"""Aligns text that a file computes from its own strings with the lines on which those strings stand."""

from difflib import SequenceMatcher

_TELLING = 8


def on_lines_of(written: str, made: str) -> str | None:
    """Return `made` with blank lines inserted, so that its lines have the numbers that they have in `written`.

    Lines are equal if they differ only in white space and in doubled braces, as those of an f-string do. Lines that
    lie between two matches follow the first. None if no line tells where the text stands.

    Args:
        written: the file's text.
        made: the text computed from its strings by formatting, replacing, joining and the like.
    """
    lines = made.splitlines()
    matcher = SequenceMatcher(
        None, [_key(line) for line in lines], [_key(line) for line in written.splitlines()], False
    )
    places: dict[int, int] = {}
    for block in matcher.get_matching_blocks():
        own = range(block.a, block.a + block.size)
        if any(len(_key(lines[at])) >= _TELLING for at in own):
            places |= {at: block.b - block.a + at for at in own}
    if not places:
        return None
    first = min(places)
    out = [""] * (places[first] - first)
    for at, line in enumerate(lines):
        if not (out and out[-1].endswith("\\")):  # a macro continues
            out += [""] * (places.get(at, 0) - len(out))
        out.append(line)
    return "\n".join(out)


def _key(line: str) -> str:
    return "".join(line.split()).replace("{{", "{").replace("}}", "}")
