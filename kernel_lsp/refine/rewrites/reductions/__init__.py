"""Threads that share out a row, a sum, a scan or a histogram, and combine their values.

`team` and `row_sharing` are the means: who takes part, and who does what. `parallel_rows`, `block_rows`, `one_thread`
and `split_columns` give more threads to a row, `grid_scan` to an array's running sums, `first_thread` spares those that
leave at once. `register_sums`, with `carried_sums`, and `online_softmax` spare passes over memory, `warp_shuffle`
barriers, `block_sums` both, `block_atomics` and `shared_bins` atomics. `scans`, `placed_extremes`, `atomic_adds` and
`warp_code` find patterns for these.
"""
