"""Cases that a workload does not name: one of its own with one whole number changed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from types import MappingProxyType
from typing import Any, TypeGuard

Case = Mapping[str, Any]
_NONE: Mapping[str, int] = MappingProxyType({})


def other_sizes(cases: Sequence[Case], multiples: Mapping[str, int] = _NONE) -> list[dict[str, Any]]:
    """Return cases beside the listed ones, each the smallest of them but for one entry.

    Of each whole number three other values are tried, in this order: one beyond twice the largest listed, one below
    the largest, one below the smallest. They are prime, and so on no tile's border, or prime multiples of what an entry
    is always a multiple of, as `multiples` says. Entries need not be sizes, nor go with others: who calls the
    workload's functions finds out.
    """
    smallest = min(cases, key=extent)
    values = {key: sorted({case[key] for case in cases if key in case and _is_size(case[key])}) for key in smallest}
    values = {key: listed for key, listed in values.items() if listed and _is_size(smallest[key])}
    found: list[dict[str, Any]] = []
    for ways in zip(*(_others(listed, multiples.get(key, 1)) for key, listed in values.items()), strict=True):
        for (key, listed), value in zip(values.items(), ways, strict=True):
            case = {**smallest, key: value}
            if value not in listed and case not in found:
                found.append(case)
    return found


def sizes_near_the_largest(cases: Sequence[Case], multiples: Mapping[str, int] = _NONE) -> list[dict[str, Any]]:
    """Return cases beside the listed ones, each the largest of them but for one entry: the prime below it, or above.

    An entry becomes a prime multiple of the number that `multiples` has for it.

    A kernel may be right on large cases of the listed sizes alone, where it is quick, and on every small one. An entry
    that is below another one in all listed cases is not put above it: a row may be padded, and a word looked up in it.
    """
    largest = max(cases, key=extent)
    found: list[dict[str, Any]] = []
    for key, value in largest.items():
        if _is_size(value):
            unit = multiples.get(key, 1)
            found += [{**largest, key: other} for other in (_below(value, unit), _beyond(value, unit))]
    return [case for case in found if case not in cases and not _turns_round(case, largest, cases)]


def _turns_round(case: Case, largest: Case, cases: Sequence[Case]) -> bool:
    """Return True if an entry of a case exceeds another one that is larger than it in all listed cases."""
    sizes = [key for key, value in largest.items() if _is_size(value)]
    return any(
        case[low] > case[high] and all(one[low] < one[high] for one in cases if low in one and high in one)
        for low, high in permutations(sizes, 2)
    )


def _others(listed: Sequence[int], unit: int) -> Iterator[int]:
    yield _beyond(2 * listed[-1], unit)
    yield _below(listed[-1], unit)
    yield _below(listed[0], unit)


def _beyond(number: int, unit: int) -> int:
    """Return the smallest prime multiple of `unit` that is larger than a number."""
    return unit * _prime_from(number // unit + 1)


def _below(number: int, unit: int) -> int:
    """Return the largest prime multiple of `unit` below a multiple of it; `unit` itself where there is none."""
    return unit * _prime_below(number // unit)


def _prime_below(number: int) -> int:
    """Return the largest prime below a number; 1 where there is none."""
    return next((other for other in range(number - 1, 1, -1) if _is_prime(other)), 1)


def _prime_from(number: int) -> int:
    """Return the smallest prime that is not below a number; there is one below its double (Bertrand, Chebyshev)."""
    return next(other for other in range(max(number, 2), 2 * number + 3) if _is_prime(other))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def extent(case: Case) -> int:
    """Return the product of a case's whole numbers."""
    return math.prod(value for value in case.values() if _is_size(value))
