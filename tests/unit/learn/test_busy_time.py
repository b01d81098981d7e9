"""Time is counted once however many blocks are open, and not while none is."""

from kernel_lsp.learn.busy import BusyTime


def test_blocks_that_overlap_count_once_and_pauses_not_at_all() -> None:
    now = 0.0
    busy = BusyTime(lambda: now)
    with busy.running():
        now = 2.0
        with busy.running():
            now = 5.0
            assert busy.seconds == 5.0
        now = 6.0
    now = 16.0
    assert busy.seconds == 6.0
    with busy.running():
        now = 17.0
    assert busy.seconds == 7.0
