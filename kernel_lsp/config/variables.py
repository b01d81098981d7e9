"""Environment variables by name, or by how their names begin."""

import fnmatch
import os
from collections.abc import Iterable


def named_variables(names: Iterable[str]) -> dict[str, str]:
    """Return this process's environment variables of these names; one with `*` at its end is how names begin."""
    patterns = tuple(names)
    return {
        name: value for name, value in os.environ.items() if any(fnmatch.fnmatchcase(name, one) for one in patterns)
    }
