"""Rewrites of Triton kernels.

`whole_row`, `persistent` and `pipelined_loop` change how a program goes through its elements, `cache_hints` how it
loads and stores them. `ast_triton` answers queries on their syntax trees.
"""
