"""Stands in for a GPU while user code runs in a worker without one.

`gpu` is the fake GPU, on torch's CPU tensors: `streams` has its streams and graphs, `driver` what programs ask CUDA's
driver for, `operations` the base of what replaces torch's operations. `shortfall` tells its errors from the user's.
"""
