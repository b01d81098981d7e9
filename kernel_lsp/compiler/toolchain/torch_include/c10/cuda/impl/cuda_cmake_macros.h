// PyTorch's build writes this header where it has CUDA; a PyTorch without CUDA lacks it, though its other headers
// include it. Device code needs none of its macros.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
