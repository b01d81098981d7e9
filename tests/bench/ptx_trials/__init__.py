"""Random kernels of one instruction each, with what the emulator says they write."""
