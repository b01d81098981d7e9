// PyTorch's accessors of tensors, for device code that is compiled without PyTorch's headers: their members, in their
// order, with the same types. And its checks in functions that make constants; elsewhere device code has none of them.
#pragma once

__device__ void kernel_lsp_check_of_the_host();  // defined nowhere, so that what calls it is no machine code
#define TORCH_CHECK(condition, ...) ((condition) ? void() : kernel_lsp_check_of_the_host())
#define STD_TORCH_CHECK(condition, ...) TORCH_CHECK(condition)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition)

namespace at {
template <typename T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <typename T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  __host__ __device__ TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : own(data), lengths(sizes), steps(strides) {}
  __host__ __device__ PtrType data() const { return own; }
  __host__ __device__ Index size(Index axis) const { return lengths[axis]; }
  __host__ __device__ Index stride(Index axis) const { return steps[axis]; }
  __host__ __device__ decltype(auto) operator[](Index at) const {
    if constexpr (N == 1) {
      return (own[at * steps[0]]);
    } else {
      return TensorAccessor<T, N - 1, Traits, Index>(own + at * steps[0], lengths + 1, steps + 1);
    }
  }

 private:
  PtrType own;
  const Index* lengths;
  const Index* steps;
};

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename Traits<T>::PtrType;
  __host__ __device__ GenericPackedTensorAccessor(PtrType data, const Index* sizes, const Index* strides) : own(data) {
    for (size_t axis = 0; axis < N; axis++) {
      lengths[axis] = sizes[axis];
      steps[axis] = strides[axis];
    }
  }
  __host__ __device__ PtrType data() const { return own; }
  __host__ __device__ Index size(Index axis) const { return lengths[axis]; }
  __host__ __device__ Index stride(Index axis) const { return steps[axis]; }
  __host__ __device__ decltype(auto) operator[](Index at) const {
    if constexpr (N == 1) {
      return (own[at * steps[0]]);
    } else {
      return TensorAccessor<T, N - 1, Traits, Index>(own + at * steps[0], lengths + 1, steps + 1);
    }
  }

 private:
  PtrType own;
  Index lengths[N];
  Index steps[N];
};

template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
template <typename T, size_t N, template <typename> class Traits = DefaultPtrTraits, typename Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, Index>;
}  // namespace at

namespace torch {
using at::DefaultPtrTraits;
using at::GenericPackedTensorAccessor;
using at::PackedTensorAccessor;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
using at::RestrictPtrTraits;
using at::TensorAccessor;
}  // namespace torch
