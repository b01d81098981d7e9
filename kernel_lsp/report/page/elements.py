"""HTML from nested calls; every text in it is escaped, for what a page shows was written by strangers."""

from html import escape


class Markup(str):
    """HTML that has been made by `tag`, to be taken as it is."""

    __slots__ = ()


def tag(name: str, *children: "str | Markup | None", **attributes: str | None) -> Markup:
    """An element. A child that is no `Markup` is text; None is nothing. `class_` and the like lose the last `_`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: "str | Markup | None") -> Markup:
    """Elements and texts one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(c, quote=False) for c in children if c is not None))
