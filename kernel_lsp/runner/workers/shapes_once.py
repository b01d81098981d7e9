"""Compute a shape when this module is imported: in a fork server, so that no later oracle imports what that takes.

An oracle learns the sizes of inputs from tensors without memory. Torch computes these in Python, and the first random
number, product or sum of one imports hundreds of modules. A first session does not wait for that in its zygote, where
other processes are forked meanwhile; what its oracle has imported later sessions find.
"""

import torch

(torch.randn(2, 2, device="meta") * 2.0 + 1.0).to(torch.float16).sum()
torch.randint(0, 2, (2,), device="meta")
