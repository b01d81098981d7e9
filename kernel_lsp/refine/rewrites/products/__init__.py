"""Products of matrices: tiles in shared memory, tiles in registers, and tensor cores.

`naive_product` recognises a product for `tensor_product` and `tile_product`; `register_tile` goes on from the second,
with what `tiled_product` finds. `warpgroup_products` puts `wgmma` where warps multiply: `block_products`,
`product_steps` and `tile_uses` read what a block does, `warp_fragments` and `warp_instructions` what a warp does,
`sum_stores` where its sums go; `warpgroup_text` and `wgmma_text` write.
"""
