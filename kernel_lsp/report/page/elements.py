"""HTML from nested calls; every text in it is escaped, for what a page shows was written by strangers."""

from collections.abc import Iterable, Sequence
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


def plot_place(name: str, caption: str) -> Markup:
    """The place where the page's script draws the plot of this name."""
    place = tag("div", id=f"plot-{name}", class_="plot", role="img", aria_label=caption)
    return tag("figure", place, tag("figcaption", caption))


def data_table(
    caption: str | None, heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1
) -> Markup:
    """A table whose first column names its rows; columns from `text_columns` on are figures."""

    def kind(column: int) -> str | None:
        return None if column < text_columns else "number"

    body = [
        tag(
            "tr",
            tag("th", cells[0], scope="row"),
            *(tag("td", cell, class_=kind(column)) for column, cell in enumerate(cells[1:], 1)),
        )
        for cells in rows
    ]
    top = tag("tr", *(tag("th", head, scope="col", class_=kind(column)) for column, head in enumerate(heads)))
    said = tag("caption", caption) if caption else None
    return tag("div", tag("table", said, tag("thead", top), tag("tbody", *body)), class_="scroll")


def facts_list(facts: dict[str, str]) -> Markup:
    """Names and what is known of each."""
    return tag("dl", *(part for name, value in facts.items() for part in (tag("dt", name), tag("dd", value))))
