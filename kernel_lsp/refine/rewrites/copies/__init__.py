"""Copies of tiles from global to shared memory, and the rewrite that has the hardware make them in bulk.

`block_names`, `thread_run` and `block_copies` run a block's threads by number and find what they copy, `staged_loops`
and `copy_groups` when; `bulk_text` and `bulk_groups` write for `bulk_copies`.
"""
