"""C++ host code of CUDA extensions, built in under a second: against a thin header, separately from the device code."""
