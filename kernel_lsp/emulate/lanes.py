"""Sets of threads that execute one instruction together, and values that have an element for each of them.

Worker-only: imports numpy. The threads of the resident blocks form a rectangle: a row for each block, a column for each
thread of a block. A value is an array of shape (rows or 1, columns or 1): if it is equal in all blocks, or for all
threads of a block, it is stored and computed once. Most sets of threads are rectangles themselves; others have a mask.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = "slice | NDArray[np.intp]"

WARP = 32


class Lanes:
    """A set of threads: `rows` x `columns`, less those that `mask` leaves out.

    Attributes:
        extent: (rows, columns) of the whole rectangle.
        rows, columns: a slice or ascending indices. Both are slices where there is a mask.
        mask: (rows, columns) of this set, or None if all take part.
        shape: (number of rows, number of columns).
        count: threads in the set.
    """

    def __init__(self, extent: tuple[int, int], rows: Index, columns: Index, mask: Array | None = None) -> None:
        self.extent, self.rows, self.columns, self.mask = extent, rows, columns, mask
        self.shape = (_length(rows), _length(columns))
        self.count = self.shape[0] * self.shape[1] if mask is None else int(np.count_nonzero(mask))
        self.full = mask is None and self.shape == extent
        self.index: Any = (rows, columns)
        if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
            self.index = np.ix_(rows, columns)
        self.splits: dict[tuple[int, bool], tuple[Array, Lanes | None, Lanes | None]] = {}

    @staticmethod
    def all(extent: tuple[int, int]) -> Lanes:
        """Return the set of all threads of the rectangle."""
        return Lanes(extent, slice(0, extent[0]), slice(0, extent[1]))

    @staticmethod
    def of(mask: Array) -> Lanes | None:
        """Return the threads for which `mask`, of the extent, is true; None if there are none."""
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        if not len(rows):
            return None
        extent = (mask.shape[0], mask.shape[1])
        if np.count_nonzero(mask) == len(rows) * len(columns):
            return Lanes(extent, _as_slice(rows), _as_slice(columns))
        within = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        return Lanes(extent, *within, mask[within])

    @cached_property
    def row_ids(self) -> NDArray[np.intp]:
        """Return indices of the rows."""
        return _ids(self.rows)

    @cached_property
    def column_ids(self) -> NDArray[np.intp]:
        """Return indices of the columns."""
        return _ids(self.columns)

    @cached_property
    def warps(self) -> int:
        """Return warps with at least one thread of the set."""
        if self.mask is None:
            return self.shape[0] * len(self._warp_starts)
        return int(np.count_nonzero(self._takes_part))

    def total_of_warps(self, figures: Array) -> int:
        """Return the sum of figures, (blocks, warps of a block), over the warps with at least one thread of the set."""
        if self.full:
            return int(figures.sum())
        own = figures[self.rows][:, self.column_ids[self._warp_starts] // WARP]
        return int((own if self.mask is None else own[self._takes_part]).sum())

    @cached_property
    def _warp_starts(self) -> NDArray[np.intp]:
        """Return where the columns of each warp begin."""
        return np.flatnonzero(np.diff(self.column_ids // WARP, prepend=-1))

    @cached_property
    def _takes_part(self) -> Array:
        """Return which warps have a thread of a set with a mask, (blocks, warps that have columns)."""
        assert self.mask is not None
        return np.logical_or.reduceat(self.mask, self._warp_starts, axis=1)

    def to_mask(self) -> Array:
        """Return a mask of the whole extent."""
        whole = np.zeros(self.extent, np.bool_)
        whole[self.index] = True if self.mask is None else self.mask
        return whole

    def read(self, value: Array) -> Array:
        """Return the elements of a value for the rows and columns of this set, (rows or 1, columns or 1)."""
        if self.full:
            return value
        one_row, one_column = value.shape[0] == 1, value.shape[1] == 1
        if one_row:
            return value if one_column else value[:, self.columns]
        return value[self.rows] if one_column else value[self.index]

    def write(self, target: Array, value: Array) -> None:
        """Set the elements of these threads in `target`, of the whole extent."""
        if self.mask is None:
            target[self.index] = value
        else:
            mask = self.mask if target.ndim == 2 else self.mask[..., None]
            np.copyto(target[self.index], value, where=mask)

    def select(self, value: Array) -> Array:
        """Return the elements of a value read for this set, without those that the mask leaves out: then 1-D."""
        return value if self.mask is None else np.broadcast_to(value, self.shape)[self.mask]

    def spread(self, value: Array) -> Array:
        """Return selected elements in the shape (rows, columns) again: undoes `select`."""
        if self.mask is None:
            return value
        whole = np.zeros(self.shape, value.dtype)
        whole[self.mask] = value
        return whole

    def where(self, condition: Array) -> tuple[Lanes | None, Lanes | None]:
        """Return the threads for which `condition`, read for this set, is true, and the others."""
        if self.mask is None:
            if condition.size == 1:
                return (self, None) if condition.item() else (None, self)
            if condition.shape[0] == 1 or condition.shape[1] == 1:
                chosen = condition.ravel()
                number = np.count_nonzero(chosen)
                if number in (0, chosen.size):
                    return (self, None) if number else (None, self)
                by_column = condition.shape[0] == 1
                return self._strip(by_column, chosen), self._strip(by_column, ~chosen)
            taken, left = condition, ~condition
        else:
            taken, left = self.mask & condition, self.mask & ~condition
        number = np.count_nonzero(taken)
        if number == 0:
            return None, self
        if number == self.count:
            return self, None
        return self._part(taken), self._part(left)

    def _strip(self, by_column: bool, chosen: Array) -> Lanes:
        """Return the set reduced to some of its columns, or of its rows."""
        if by_column:
            return Lanes(self.extent, self.rows, _as_slice(self.column_ids[chosen]))
        return Lanes(self.extent, _as_slice(self.row_ids[chosen]), self.columns)

    def _part(self, mask: Array) -> Lanes | None:
        whole = np.zeros(self.extent, np.bool_)
        whole[self.index] = mask
        return Lanes.of(whole)

    def joined(self, other: Lanes) -> Lanes:
        """Return the union of both sets, which are disjoint."""
        if self.mask is None and other.mask is None:
            if _same(self.rows, other.rows):
                columns = np.sort(np.concatenate((self.column_ids, other.column_ids)))
                return Lanes(self.extent, self.rows, _as_slice(columns))
            if _same(self.columns, other.columns):
                return Lanes(
                    self.extent, _as_slice(np.sort(np.concatenate((self.row_ids, other.row_ids)))), self.columns
                )
        union = Lanes.of(self.to_mask() | other.to_mask())
        assert union is not None
        return union

    def place(self, position: int, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return row and column of the element at flat `position` in an array of this shape returned by `select`."""
        if self.mask is not None and len(shape) == 1:
            rows, columns = np.nonzero(self.mask)
            return int(self.row_ids[rows[position]]), int(self.column_ids[columns[position]])
        row, column = np.unravel_index(position, shape)
        return int(self.row_ids[row]), int(self.column_ids[column])

    @cached_property
    def lane_ids(self) -> NDArray[np.intp]:
        """Return row * columns of the extent + column, for the elements that `select` returns."""
        return self.select(self.row_ids[:, None] * self.extent[1] + self.column_ids[None, :])


def _ids(index: Index) -> NDArray[np.intp]:
    return np.arange(index.start, index.stop, index.step or 1) if isinstance(index, slice) else index


def _length(index: Index) -> int:
    return len(range(index.start, index.stop, index.step or 1)) if isinstance(index, slice) else len(index)


def _as_slice(ids: NDArray[np.intp]) -> Index:
    """Return evenly spaced indices as a slice, which numpy need not copy."""
    if len(ids) == 1:
        return slice(int(ids[0]), int(ids[0]) + 1)
    step = int(ids[1] - ids[0])
    if int(ids[-1] - ids[0]) == step * (len(ids) - 1) and (len(ids) == 2 or bool((np.diff(ids) == step).all())):
        return slice(int(ids[0]), int(ids[-1]) + 1, step)
    return ids


def _same(one: Index, other: Index) -> bool:
    if isinstance(one, slice) and isinstance(other, slice):
        return (one.start, one.stop, one.step or 1) == (other.start, other.stop, other.step or 1)
    return _length(one) == _length(other) and bool((_ids(one) == _ids(other)).all())
