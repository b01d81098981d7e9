// Rotary position embedding of queries (or keys), in place: a PyTorch extension as it would be built with
// torch.utils.cpp_extension. In each head the pair (d, d + head_dim / 2) is rotated by the angle of its token and d.
//
// What limits it: memory bandwidth. Each half-precision element is read and written once, 4 bytes of compulsory
// traffic, for 3 flops; the cosines and sines of a token are shared by its heads and come from cache after the first.
// As in any half-precision kernel with scalar accesses, a warp moves only 64 bytes per instruction, and two divisions
// by values known only at run time stand before the first load.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
#include <torch/extension.h>

constexpr int THREADS = 256;

// q: tokens x heads x (2 * half_dim); cos, sin: tokens x half_dim; pairs = tokens * heads * half_dim.
__global__ void __launch_bounds__(THREADS)
rotary_kernel(__half* __restrict__ q, const float* __restrict__ cos, const float* __restrict__ sin, int pairs,
              int heads, int half_dim) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pairs) {
        return;
    }
    int d = i % half_dim;
    int head = i / half_dim;  // counted over all tokens
    int token = head / heads;

    float c = cos[token * half_dim + d];
    float s = sin[token * half_dim + d];
    size_t first = (size_t)head * 2 * half_dim + d;
    size_t second = first + half_dim;
    float a = __half2float(q[first]);
    float b = __half2float(q[second]);
    q[first] = __float2half(a * c - b * s);
    q[second] = __float2half(a * s + b * c);
}

torch::Tensor rotary_(torch::Tensor q, torch::Tensor cos, torch::Tensor sin) {
    TORCH_CHECK(q.is_cuda() && cos.device() == q.device() && sin.device() == q.device(), "all on one CUDA device");
    TORCH_CHECK(q.scalar_type() == torch::kHalf, "q must be float16");
    TORCH_CHECK(cos.scalar_type() == torch::kFloat, "cos must be float32");
    TORCH_CHECK(sin.scalar_type() == torch::kFloat, "sin must be float32");
    TORCH_CHECK(q.is_contiguous() && cos.is_contiguous() && sin.is_contiguous(), "all must be contiguous");
    TORCH_CHECK(q.dim() == 3 && q.size(2) % 2 == 0, "q must be tokens x heads x an even head dimension");
    TORCH_CHECK(cos.dim() == 2 && cos.size(0) == q.size(0) && 2 * cos.size(1) == q.size(2),
                "cos must be tokens x half the head dimension");
    TORCH_CHECK(sin.sizes() == cos.sizes(), "sin must be of cos's shape");
    TORCH_CHECK(q.numel() < (int64_t{1} << 31), "q is too large for 32-bit indices");

    const int pairs = static_cast<int>(q.numel() / 2);
    if (pairs == 0) {
        return q;
    }
    const c10::cuda::CUDAGuard guard(q.device());
    const int blocks = (pairs + THREADS - 1) / THREADS;
    rotary_kernel<<<blocks, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<__half*>(q.data_ptr<at::Half>()), cos.data_ptr<float>(), sin.data_ptr<float>(), pairs,
        static_cast<int>(q.size(1)), static_cast<int>(q.size(2) / 2));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return q;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("rotary_", &rotary_, "Rotary position embedding in place (CUDA)");
}
