"""Copies of tiles from global to shared memory, and the rewrites that have them made while a block computes.

`block_names`, `thread_run` and `block_copies` run a block's threads by number and find what they copy, `staged_loops`
and `copy_groups` when; `bulk_text` and `bulk_groups` write for `bulk_copies`. `element_copies` finds loops that copy
element by element, for `two_stages`.
"""
