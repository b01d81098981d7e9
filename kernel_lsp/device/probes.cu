// The harness's own kernels: a clock reading, a delay, a checksum and one for the L2 cache. Compiled once per architecture.

// Cycle counter and nanosecond timer of the multiprocessor that runs this block, at 2 * its number if that is in range.
extern "C" __global__ void read_clock(long long* readings, unsigned count) {
    unsigned multiprocessor;
    long long nanoseconds;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    if (multiprocessor < count) {
        readings[2 * multiprocessor] = clock64();
        readings[2 * multiprocessor + 1] = nanoseconds;
    }
}

// Keep the queue busy for a while, so that what is enqueued behind starts without a gap.
extern "C" __global__ void spin(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
}

// Take from the L2 lines of `nbytes` from `start` on, which is aligned to them, the priority that a kernel may have given
// them: those that are to be kept outlive the flush of the cache otherwise. Each sector is read as one to be evicted first.
extern "C" __global__ void demote(const char* start, long long nbytes) {
#if __CUDA_ARCH__ >= 800
    const long long line = 128, sector = 32, stride = (long long)gridDim.x * blockDim.x * sector;
    unsigned long long first;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    for (long long at = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * sector; at < nbytes; at += stride) {
        unsigned value;
        if (at % line == 0) asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(start + at) : "memory");
        asm volatile("ld.global.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(value) : "l"(start + at), "l"(first) : "memory");
    }
#endif
}

// Write `nbytes` from `start` on, which is aligned to 16, as lines to be kept: they drive out others that are.
extern "C" __global__ void occupy(char* start, long long nbytes) {
#if __CUDA_ARCH__ >= 800
    const long long width = 16, stride = (long long)gridDim.x * blockDim.x * width;
    unsigned long long last;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
    for (long long at = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * width; at + width <= nbytes; at += stride)
        asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %1, %1, %1}, %2;" ::"l"(start + at), "r"(0x3F800000),
                     "l"(last)
                     : "memory");
#endif
}

// An odd number for each place, so that no number can change and leave a sum of numbers times these as it was.
__device__ unsigned long long weight(long long place) {
    const unsigned long long mixed = (place + 1) * 0x9E3779B97F4A7C15ull;
    return (mixed ^ (mixed >> 32)) | 1;
}

// Add to `sum` a checksum of `nbytes` from `start` on, which is aligned to 16 bytes: integers, so in whatever order it is
// added. One pass and no memory of its own, where tensor operations would make a 64-bit copy first. Places are counted
// from `salt` on.
extern "C" __global__ void kernel_lsp_checksum(const ulonglong2* start, long long nbytes, long long salt,
                                               unsigned long long* sum) {
    constexpr int together = 4;  // loads under way at once
    const long long count = nbytes / 16, stride = (long long)gridDim.x * blockDim.x;
    const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    unsigned long long own = 0;
    long long place = first;
    for (; place + (together - 1) * stride < count; place += together * stride) {
        ulonglong2 found[together];
#pragma unroll
        for (int k = 0; k < together; ++k) found[k] = start[place + k * stride];
#pragma unroll
        for (int k = 0; k < together; ++k)
            own += found[k].x * weight(salt + 2 * (place + k * stride)) +
                   found[k].y * weight(salt + 2 * (place + k * stride) + 1);
    }
    for (; place < count; place += stride)
        own += start[place].x * weight(salt + 2 * place) + start[place].y * weight(salt + 2 * place + 1);
    if (first < nbytes % 16)
        own += reinterpret_cast<const unsigned char*>(start + count)[first] * weight(salt + 2 * count + first);
    for (int offset = 16; offset > 0; offset /= 2) own += __shfl_down_sync(~0u, own, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}
