"""Find the licence that a user's kernel file is under, from what stands in it or beside it."""

import re
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
"""No licence was found; that is no leave to pass anything on."""

_SPDX = re.compile(r"SPDX-License-Identifier:\s*([\w.+() -]*[\w.+)])")
_HEAD = 4000  # characters of a file in which its licence stands, if it does
_NAMES = ("LICENSE", "LICENCE", "COPYING")
_ENDINGS = ("", ".txt", ".md")
_TITLES = {  # words that only one licence has, in the order in which they are looked for
    "Apache-2.0": r"Apache License\s+Version 2\.0",
    "AGPL-3.0": r"GNU AFFERO GENERAL PUBLIC LICENSE\s+Version 3",
    "LGPL-3.0": r"GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3",
    "GPL-3.0": r"GNU GENERAL PUBLIC LICENSE\s+Version 3",
    "GPL-2.0": r"GNU GENERAL PUBLIC LICENSE\s+Version 2",
    "MPL-2.0": r"Mozilla Public License,? [Vv]ersion 2\.0",
    "MIT": r"Permission is hereby granted, free of charge, to any person obtaining a copy",
    "BSD-3-Clause": r"Redistribution and use in source and binary forms[\s\S]*Neither the name",
    "BSD-2-Clause": r"Redistribution and use in source and binary forms",
}


def licence_of(path: Path) -> str:
    """Return a kernel file's licence by its SPDX id: from its head, else from the nearest licence file above it.

    The folder with `.git` is the last one that is looked in. A file that is there no more has an unknown licence unless
    its folder tells.
    """
    if found := _SPDX.search(_head(path)):
        return found[1]
    return _of_folder(path.parent)


@cache
def _of_folder(folder: Path) -> str:
    for name in (f"{stem}{ending}" for stem in _NAMES for ending in _ENDINGS):
        if text := _head(folder / name):
            return _named(text)
    if (folder / ".git").exists() or folder == folder.parent:
        return UNKNOWN
    return _of_folder(folder.parent)


def _named(text: str) -> str:
    if found := _SPDX.search(text):
        return found[1]
    return next((name for name, title in _TITLES.items() if re.search(title, text)), UNKNOWN)


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HEAD)
    except OSError:
        return ""
