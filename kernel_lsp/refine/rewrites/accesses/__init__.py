"""Which elements a thread takes, and how it loads and stores them.

A thread for each output (`loop_axis`), vectors (`vectorize`, `cache_row`), several elements a thread (`multi_element`,
`grid_stride`, `row_window`, `several_outputs`, `sums_at_once`), order along memory (`swap_axes`, `transpose_tile`,
`transpose_loop`, `pad_shared`), neighbours of a stencil (`halo_tile`), windows without tests (`clipped_loops`),
cheaper indices (`two_axes`, `one_axis`, `strength_reduce`) and arithmetic (`float_arithmetic`), and promises to the
compiler (`restrict`). `launched_limits` writes down a test that these need. `flat_division`, `neighbours`,
`output_axes` and `output_sums` find patterns for them, `element_loop` makes a loop where each thread had one element.
"""
