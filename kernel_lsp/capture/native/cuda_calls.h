// The few calls and layouts of the CUDA driver and of CUPTI that the recorder and the replay use.
// They are declared here and found with dlsym at run time, so neither needs an NVIDIA header or library to be built.
// A test compares these layouts and numbers with NVIDIA's headers where a toolkit has them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuda {

using Status = int;  // of the driver and of CUPTI: 0 is success
using Address = unsigned long long;
using Handle = void*;  // a context, stream, module, function, event or kernel

constexpr int ATTRIBUTE_MEMORY_TYPE = 2;  // of a pointer
constexpr unsigned MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_UNIFIED = 4;
constexpr int LAUNCH_COOPERATIVE = 2, LAUNCH_CLUSTER = 4;
constexpr int FUNCTION_SHARED = 1, FUNCTION_MOST_DYNAMIC = 8, FUNCTION_CARVEOUT = 9, FUNCTION_ANY_CLUSTER = 14;
constexpr int CAPTURE_MODE_RELAXED = 2;
constexpr int PINNED = 1, ON_DEVICE = 1, READ_AND_WRITE = 3, LEAST_GRANULARITY = 0;
constexpr uintptr_t STREAM_PER_THREAD = 2;
constexpr uintptr_t EXTRA_END = 0, EXTRA_BUFFER = 1;

struct LaunchAttribute {
    int id;
    union {
        uint64_t whole[8];
        unsigned cluster[3];
        int cooperative;
    } value;
};

struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Handle stream;
    LaunchAttribute* attributes;
    unsigned count;
};

struct Location {
    int type, id;
};

struct AllocationProperties {
    int type, handle_types;
    Location location;
    void* unused;
    uint64_t flags;
};

struct AccessDescription {
    Location location;
    int flags;
};

// What CUPTI hands to a callback about the arguments of a driver call.
struct LaunchKernelParameters {
    Handle function;
    unsigned grid[3], block[3], shared;
    Handle stream;
    void** parameters;
    void** extra;  // a cooperative launch has none
};

struct LaunchKernelExParameters {
    const LaunchConfig* config;
    Handle function;
    void** parameters;
    void** extra;
};

}  // namespace cuda

namespace cupti {

constexpr uint32_t LEAST_VERSION = 18;  // CUDA 12.0: the first with this layout of a kernel's record
constexpr int MULTIPLE_SUBSCRIBERS = 39;
constexpr int CONCURRENT_KERNEL = 10;
constexpr uint32_t FLUSH_FORCED = 1;
constexpr int DOMAIN_DRIVER = 1, DOMAIN_RESOURCE = 3;
constexpr uint32_t MODULE_LOADED = 6;
constexpr int ENTER = 0;
constexpr uint32_t LAUNCH_KERNEL = 307, LAUNCH_KERNEL_PTSZ = 442, LAUNCH_COOPERATIVE = 477, LAUNCH_COOPERATIVE_PTSZ = 478,
                   LAUNCH_KERNEL_EX = 652, LAUNCH_KERNEL_EX_PTSZ = 653;

struct KernelRecord {  // as far as it is read; later versions of CUPTI add at its end
    int kind;
    uint8_t cache, shared_config;
    uint16_t registers;
    int requested, executed;
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], fixed_shared, dynamic_shared;
    uint32_t local_each, local_all, correlation;
    int64_t grid_id;
    const char* name;
    void* reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout_requested, carveout, padding;
    uint32_t shared_executed;
    uint64_t graph_node;
    int limit;
    uint32_t graph;
};

struct CallbackData {
    int site;
    const char* function;
    const void* parameters;
    void* returned;
    const char* symbol;
    cuda::Handle context;
    uint32_t context_id;
    uint64_t* correlation_data;
    uint32_t correlation;
};

struct ResourceData {
    cuda::Handle context, resource;
    const void* descriptor;
};

struct ModuleData {
    uint32_t id;
    size_t size;
    const char* cubin;
};

using Callback = void (*)(void*, int, uint32_t, const void*);
using BufferRequested = void (*)(uint8_t**, size_t*, size_t*);
using BufferCompleted = void (*)(cuda::Handle, uint32_t, uint8_t*, size_t, size_t);

}  // namespace cupti
