"""Random pipelines of Hopper: their CUDA text and data, what the emulator makes of them, and what a GPU does."""
