// The harness's own kernels: a clock reading and a delay. Compiled once per architecture.

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
