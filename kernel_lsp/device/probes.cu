// The harness's own kernels: a clock reading, a delay and a checksum. Compiled once per architecture.

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

// An odd number for each place, so that no word can change and leave a sum of words times these as it was.
__device__ unsigned long long weight(long long place) {
    const unsigned long long mixed = (place + 1) * 0x9E3779B97F4A7C15ull;
    return (mixed ^ (mixed >> 32)) | 1;
}

// Add to `sum` a checksum of `nbytes` at `words`, which is aligned to 4 bytes: integers, so in whatever order it is added.
// One pass and no memory of its own, where tensor operations would make a 64-bit copy first.
extern "C" __global__ void kernel_lsp_checksum(const unsigned* words, long long nbytes, unsigned long long* sum) {
    constexpr int together = 8;  // loads under way at once
    const long long count = nbytes / 4, tile = (long long)together * blockDim.x;
    unsigned long long own = 0;
    for (long long start = blockIdx.x * tile + threadIdx.x; start < count; start += gridDim.x * tile) {
        unsigned found[together];
#pragma unroll
        for (int k = 0; k < together; ++k) found[k] = words[min(start + (long long)k * blockDim.x, count - 1)];
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const long long place = start + (long long)k * blockDim.x;
            if (place < count) own += found[k] * weight(place);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < nbytes % 4)
        own += reinterpret_cast<const unsigned char*>(words + count)[threadIdx.x] * weight(count + threadIdx.x);
    for (int offset = 16; offset > 0; offset /= 2) own += __shfl_down_sync(~0u, own, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}
