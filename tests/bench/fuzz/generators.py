"""All generators of instances. A room with instructions of its own adds its function here."""

from collections.abc import Callable, Iterator

import numpy as np

from tests.bench.fuzz import arithmetic
from tests.bench.fuzz.instance import Instance

Generator = Callable[[np.random.Generator, int], Iterator[Instance]]

GENERATORS: dict[str, tuple[Generator, float]] = {
    "arithmetic": (arithmetic.generate, 1.0),
}
"""Name to function and its share of the instances asked for."""
