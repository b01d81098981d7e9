// The thin header: what usual host wrappers of CUDA kernels need of PyTorch, of pybind11 and of CUDA's runtime.
//
// It stands in for torch/extension.h and cuda_runtime.h and is compiled ahead of time. Tensors are Python's, so there is
// no interface of torch's that could change under it. What it lacks is built with the real headers instead.
#pragma once

#include "cuda.h"
#include "bind.h"
