"""Selects environment variables by name, or by the beginning of a name."""

import fnmatch
import os
from collections.abc import Iterable


def named_variables(names: Iterable[str]) -> dict[str, str]:
    """Return this process's environment variables of these names; `FLA_*` matches all that begin with `FLA_`."""
    patterns = tuple(names)
    return {
        name: value for name, value in os.environ.items() if any(fnmatch.fnmatchcase(name, one) for one in patterns)
    }
