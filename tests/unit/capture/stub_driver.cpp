// A GPU's driver and CUPTI for tests on the CPU, in one library: device memory is the process's own, kernels are known
// by name, and the injected library is loaded and called back as NVIDIA's would do it. STUB_* variables make it misbehave.
#include <dlfcn.h>
#include <sys/mman.h>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_calls.h"

using cuda::Address;
using cuda::Handle;

namespace {

struct Kernel {
    std::string name;
    std::vector<std::pair<size_t, size_t>> layout;
};
struct Module {
    std::string image;
    float bias[4] = {1, 2, 3, 4};
    std::map<std::string, Kernel> kernels;
    bool told = false;
};
std::map<Address, size_t> allocations;
std::vector<cupti::KernelRecord> records;
std::mutex records_lock;  // the recorder flushes them from a thread of its own
cupti::Callback callback;
cupti::BufferRequested requested;
cupti::BufferCompleted completed;
std::map<std::pair<int, uint32_t>, bool> enabled;
Module* last_module;
uint64_t clock_ns = 1000;
int racing;

const std::map<std::string, std::vector<std::pair<size_t, size_t>>> LAYOUTS = {
    {"scale_view", {{0, 24}}}, {"batched", {{0, 8}, {8, 4}}}, {"racy", {{0, 8}}}};

std::pair<const Address, size_t>* block_at(Address address) {
    auto found = allocations.upper_bound(address);
    if (found == allocations.begin()) return nullptr;
    --found;
    return address < found->first + found->second ? &*found : nullptr;
}

void run(const Kernel& kernel, void** parameters) {
    float* bias = last_module->bias;
    if (kernel.name == "scale_view") {
        struct View {
            float *data, *out;
            int n;
            float scale;
        } view;
        memcpy(&view, parameters[0], sizeof view);
        for (int i = 0; i < view.n; i++) view.out[i] = view.scale * view.data[i] + bias[i & 3];
    } else if (kernel.name == "batched") {
        float** rows = *static_cast<float***>(parameters[0]);
        int n = *static_cast<int*>(parameters[1]);
        for (int row = 0; row < 2; row++)
            for (int i = 0; i < n; i++) rows[row][i] = 2 * rows[row][i] + float(row);
        bias[0] += 1;
    } else {
        **static_cast<int**>(parameters[0]) = ++racing;
    }
}

// Tells once that the module was loaded: STUB_LAZY names the moment, `asked` for its module or `launched`.
void load(const char* moment) {
    const char* lazy = getenv("STUB_LAZY");
    bool told = last_module->told || strcmp(lazy ? lazy : "", moment);
    if (told || !callback || !enabled[{cupti::DOMAIN_RESOURCE, cupti::MODULE_LOADED}]) return;
    last_module->told = true;
    cupti::ModuleData data = {1, last_module->image.size(), last_module->image.data()};
    cupti::ResourceData resource = {nullptr, nullptr, &data};
    callback(nullptr, cupti::DOMAIN_RESOURCE, cupti::MODULE_LOADED, &resource);
}

void call_back(uint32_t call, int site, const void* parameters, const Kernel& kernel, int* result) {
    if (!callback || !enabled[{cupti::DOMAIN_DRIVER, call}]) return;
    cupti::CallbackData data = {};
    data.site = site;
    data.parameters = parameters;
    data.returned = result;
    data.symbol = kernel.name.c_str();
    callback(nullptr, cupti::DOMAIN_DRIVER, call, &data);
}

int launch(uint32_t call, const void* parameters, Handle function, const unsigned* grid, const unsigned* block, void** values) {
    auto& kernel = *static_cast<Kernel*>(function);
    int result = 0;
    call_back(call, cupti::ENTER, parameters, kernel, &result);
    load("launched");
    run(kernel, values);
    cupti::KernelRecord record = {};
    record.kind = cupti::CONCURRENT_KERNEL;
    record.start = clock_ns;
    record.end = clock_ns += 500;
    record.name = kernel.name.c_str();
    std::copy(grid, grid + 3, record.grid);
    std::copy(block, block + 3, record.block);
    {
        std::lock_guard<std::mutex> hold(records_lock);
        records.push_back(record);
    }
    call_back(call, 1, parameters, kernel, &result);
    return result;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
    const char* path = getenv("CUDA_INJECTION64_PATH");
    void* library = path ? dlopen(path, RTLD_NOW) : nullptr;
    if (library) reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"))();
    return 0;
}
int cuGetErrorString(int, const char** text) { return *text = "stub error", 0; }
int cuDeviceGet(int* device, int) { return *device = 0; }
int cuDeviceGetName(char* name, int size, int) { return strncpy(name, "Stub GPU", size_t(size)), 0; }
int cuDevicePrimaryCtxRetain(Handle* context, int) { return *context = &records, 0; }
int cuCtxSetCurrent(Handle) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuStreamIsCapturing(Handle, int* status) { return *status = getenv("STUB_CAPTURING") != nullptr, 0; }
int cuThreadExchangeStreamCaptureMode(int*) { return 0; }
int cuMemAlloc_v2(Address* address, size_t size) {
    *address = Address(uintptr_t(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
    allocations[*address] = size;
    return 0;
}
int cuMemAddressReserve(Address* address, size_t size, size_t, Address hint, unsigned long long) {
    if (getenv("STUB_NO_ADDRESS")) hint = 0;
    void* wanted = reinterpret_cast<void*>(uintptr_t(hint));
    *address = Address(uintptr_t(mmap(wanted, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
    return 0;
}
int cuMemAddressFree(Address address, size_t size) { return munmap(reinterpret_cast<void*>(uintptr_t(address)), size); }
int cuMemCreate(unsigned long long* handle, size_t, const cuda::AllocationProperties*, unsigned long long) { return *handle = 1, 0; }
int cuMemMap(Address, size_t, size_t, unsigned long long, unsigned long long) { return 0; }
int cuMemSetAccess(Address address, size_t size, const cuda::AccessDescription*, size_t) {
    return mprotect(reinterpret_cast<void*>(uintptr_t(address)), size, PROT_READ | PROT_WRITE);
}
int cuMemcpyHtoD_v2(Address to, const void* from, size_t size) { return memcpy(reinterpret_cast<void*>(uintptr_t(to)), from, size), 0; }
int cuMemcpyDtoH_v2(void* to, Address from, size_t size) { return memcpy(to, reinterpret_cast<void*>(uintptr_t(from)), size), 0; }
int cuMemcpyDtoD_v2(Address to, Address from, size_t size) { return cuMemcpyHtoD_v2(to, reinterpret_cast<void*>(uintptr_t(from)), size); }
int cuMemsetD8_v2(Address, unsigned char, size_t) { return 0; }
int cuPointerGetAttribute(void* to, int, Address address) {
    if (!block_at(address)) return 1;
    *static_cast<unsigned*>(to) = cuda::MEMORY_DEVICE;
    return 0;
}
int cuMemGetAddressRange_v2(Address* base, size_t* size, Address address) {
    auto* block = block_at(address);
    if (!block) return 1;
    *base = block->first;
    *size = block->second;
    return 0;
}
int cuModuleLoadData(Handle* module, const void* image) {
    auto* made = new Module;
    const char* size = getenv("STUB_IMAGE_BYTES");
    made->image.assign(static_cast<const char*>(image), size ? size_t(atol(size)) : 64);
    for (auto& [name, layout] : LAYOUTS) made->kernels[name] = {name, layout};
    last_module = made;
    *module = made;
    load("");
    return 0;
}
int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
    auto& kernels = static_cast<Module*>(module)->kernels;
    auto found = kernels.find(name);
    return found == kernels.end() ? 500 : (*function = &found->second, 0);
}
int cuModuleGetGlobal_v2(Address* address, size_t* size, Handle module, const char* name) {
    if (strcmp(name, "c_bias")) return 500;
    *address = Address(uintptr_t(static_cast<Module*>(module)->bias));
    *size = 16;
    return 0;
}
int cuFuncGetModule(Handle* module, Handle) { return *module = last_module, load("asked"), 0; }
int cuFuncGetAttribute(int* value, int, Handle) { return *value = 0; }
int cuFuncSetAttribute(Handle, int, int) { return 0; }
int cuFuncGetParamInfo(Handle function, size_t index, size_t* offset, size_t* size) {
    auto& layout = static_cast<Kernel*>(function)->layout;
    if (index >= layout.size()) return 1;
    *offset = layout[index].first;
    *size = layout[index].second;
    return 0;
}
int cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Handle stream, void** parameters, void** extra) {
    cuda::LaunchKernelParameters given = {f, {gx, gy, gz}, {bx, by, bz}, shared, stream, parameters, extra};
    return launch(cupti::LAUNCH_KERNEL, &given, f, given.grid, given.block, parameters);
}
int cuLaunchKernelEx(const cuda::LaunchConfig* config, Handle f, void** parameters, void** extra) {
    cuda::LaunchKernelExParameters given = {config, f, parameters, extra};
    return launch(cupti::LAUNCH_KERNEL_EX, &given, f, config->grid, config->block, parameters);
}
int cuEventCreate(Handle* event, unsigned) { return *event = &records, 0; }
int cuEventRecord(Handle, Handle) { return 0; }
int cuEventSynchronize(Handle) { return 0; }
int cuEventElapsedTime(float* milliseconds, Handle, Handle) { return *milliseconds = 0.0025f, 0; }

int cuptiGetVersion(uint32_t* version) { return *version = getenv("STUB_OLD") ? 12 : 130001, 0; }
int cuptiSubscribe(Handle* subscriber, cupti::Callback called, void*) {
    if (getenv("STUB_PROFILED")) return cupti::MULTIPLE_SUBSCRIBERS;
    callback = called;
    *subscriber = &records;
    return 0;
}
int cuptiEnableCallback(uint32_t on, Handle, int domain, uint32_t call) { return enabled[{domain, call}] = on, 0; }
int cuptiActivityRegisterCallbacks(cupti::BufferRequested r, cupti::BufferCompleted c) {
    if (getenv("STUB_PROFILED")) return 7;
    requested = r;
    completed = c;
    return 0;
}
int cuptiActivityEnable(int) { return 0; }
int cuptiActivityFlushAll(uint32_t) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0;
    requested(&buffer, &size, &most);
    size_t valid;
    {
        std::lock_guard<std::mutex> hold(records_lock);
        valid = records.size() * sizeof(cupti::KernelRecord);
        if (valid > size) return 1;
        memcpy(buffer, records.data(), valid);
        records.clear();
    }
    completed(nullptr, 0, buffer, size, valid);
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
    auto* next = *record ? static_cast<uint8_t*>(*record) + sizeof(cupti::KernelRecord) : buffer;
    if (next + sizeof(cupti::KernelRecord) > buffer + valid) return 12;
    *record = next;
    return 0;
}
}
