"""Sets of lanes behave as the masks they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kernel_lsp.emulate.lanes import Lanes

extents = st.tuples(st.integers(1, 4), st.integers(1, 70))
masks = extents.flatmap(lambda extent: arrays(np.bool_, extent))
# Sets that kernels make: some blocks, some threads, every so many-th.
strips = extents.flatmap(
    lambda e: st.tuples(arrays(np.bool_, (e[0], 1)), arrays(np.bool_, (1, e[1]))).map(lambda pair: pair[0] & pair[1])
)


def values(extent: tuple[int, int], seed: int) -> list[np.ndarray]:
    """A value of each shape."""
    rng = np.random.default_rng(seed)
    shapes = [extent, (1, extent[1]), (extent[0], 1), (1, 1)]
    return [rng.integers(0, 1000, shape).astype(np.uint32) for shape in shapes]


@given(masks | strips)
def test_a_set_is_its_mask(mask):
    lanes = Lanes.of(mask)
    if lanes is None:
        assert not mask.any()
        return
    assert (lanes.to_mask() == mask).all()
    assert lanes.count == mask.sum()
    padded = np.zeros((mask.shape[0], 96), bool)
    padded[:, : mask.shape[1]] = mask
    assert lanes.warps == padded.reshape(-1, 32).any(axis=1).sum()


@given(masks | strips, st.integers(0, 99))
def test_reading_and_writing(mask, seed):
    lanes = Lanes.of(mask)
    if lanes is None:
        return
    for value in values(mask.shape, seed):
        target = np.full(mask.shape, 12345, np.uint32)
        lanes.write(target, lanes.read(value))
        assert (target == np.where(mask, value, 12345)).all()
        spread = np.broadcast_to(lanes.read(value), lanes.shape)
        assert (lanes.select(spread).ravel() == np.broadcast_to(value, mask.shape)[mask]).all()
        again = lanes.spread(lanes.select(spread))
        assert (lanes.select(again) == lanes.select(spread)).all()


@given(masks | strips, st.integers(0, 99))
def test_parting_and_meeting_again(mask, seed):
    lanes = Lanes.of(mask)
    if lanes is None:
        return
    for value in values(mask.shape, seed):
        condition = value % 2 == 0
        chosen, others = lanes.where(lanes.read(condition))
        for part, expected in ((chosen, mask & condition), (others, mask & ~condition)):
            assert (np.zeros_like(mask) if part is None else part.to_mask()).tolist() == expected.tolist()
        if chosen is not None and others is not None:
            assert (chosen.joined(others).to_mask() == mask).all()


@given(masks)
def test_places_of_selected_elements(mask):
    lanes = Lanes.of(mask)
    if lanes is None:
        return
    own = np.arange(mask.size).reshape(mask.shape)
    selected = lanes.select(np.broadcast_to(lanes.read(own), lanes.shape))
    for position, number in enumerate(selected.ravel()):
        assert lanes.place(position, selected.shape) == divmod(int(number), mask.shape[1])
    assert (lanes.lane_ids.ravel() == selected.ravel()).all()
