"""Reads a CUDA kernel and its host code; edits nothing, and knows no rewrite.

`ast_cuda`, `records`, `type_names`, `scopes` and `bindings` answer queries on syntax and names, `loops` and
`serial_loops` find loops and what they touch, `affine` and `path_facts` say what indices and conditions amount to.
`accesses`, `touches` and `reductions` tell which iterations and threads meet in memory or in a sum, `thread_rows` what
a thread's number stands for, `block_run` what a block adds up.
"""
