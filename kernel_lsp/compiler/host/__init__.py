"""C++ host code of CUDA extensions, built in under a second: against a thin header, and apart from the device code."""
