"""A small policy for studies of reinforcement learning: its kernels, what it is taught first, and a control."""
