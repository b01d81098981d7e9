// Runs in the user's process: CUDA's driver loads it as CUDA_INJECTION64_PATH names it. It sums up the times of all kernels
// and, if asked, keeps cubin, arguments and memory of one launch. It prints nothing and throws nothing to its callers;
// where it cannot work, it says why in its record and leaves the program alone.
//
// KERNEL_LSP_CAPTURE           folder of the records: PID.device.json, and PID.snapshot/ of the chosen launch
// KERNEL_LSP_CAPTURE_RANK      the rank that is recorded, where RANK is set; `all`
// KERNEL_LSP_CAPTURE_AFTER     number of launches that are not timed, from the first one
// KERNEL_LSP_CAPTURE_WINDOW    seconds, from the first timed launch, after which none is timed; 0: all are
// KERNEL_LSP_CUPTI             libcupti; used if the process has loaded none of its own
// KERNEL_LSP_SNAPSHOT          part of the name of the kernel whose launch is kept
// KERNEL_LSP_SNAPSHOT_LAUNCH   which of its launches, from 1
// KERNEL_LSP_SNAPSHOT_BYTES    the most memory that is kept
#include <cxxabi.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cuda_calls.h"

namespace {

using cuda::Address;
using cuda::Handle;
using cuda::Status;

constexpr size_t BUFFER_BYTES = 1 << 20;
constexpr size_t MOST_KINDS = 16384;      // of a name with a grid and a block; further ones are summed by name
constexpr size_t WINDOW_BYTES = 64 << 10; // behind a pointer, that are searched for more pointers
constexpr size_t CHUNK_BYTES = 16 << 20;
constexpr size_t MOST_VARIABLE_BYTES = 64 << 20;
constexpr uint32_t FLUSH_MILLISECONDS = 1000;
constexpr Address LEAST_ADDRESS = 1ull << 32;  // smaller words are numbers, not addresses of device memory
constexpr int ADDRESS_BITS = 57;

struct Driver {
    Status (*StreamIsCapturing)(Handle, int*) = nullptr;
    Status (*ThreadExchangeStreamCaptureMode)(int*) = nullptr;
    Status (*CtxSynchronize)() = nullptr;
    Status (*FuncGetParamInfo)(Handle, size_t, size_t*, size_t*) = nullptr;
    Status (*KernelGetParamInfo)(Handle, size_t, size_t*, size_t*) = nullptr;
    Status (*KernelGetFunction)(Handle*, Handle) = nullptr;
    Status (*FuncGetModule)(Handle*, Handle) = nullptr;
    Status (*FuncLoad)(Handle) = nullptr;
    Status (*FuncGetAttribute)(int*, int, Handle) = nullptr;
    Status (*ModuleGetGlobal)(Address*, size_t*, Handle, const char*) = nullptr;
    Status (*PointerGetAttribute)(void*, int, Address) = nullptr;
    Status (*MemGetAddressRange)(Address*, size_t*, Address) = nullptr;
    Status (*MemcpyDtoH)(void*, Address, size_t) = nullptr;
    Status (*DeviceGet)(int*, int) = nullptr;
    Status (*DeviceGetName)(char*, int, int) = nullptr;
};

struct Cupti {
    Status (*GetVersion)(uint32_t*) = nullptr;
    Status (*Subscribe)(Handle*, cupti::Callback, void*) = nullptr;
    Status (*EnableCallback)(uint32_t, Handle, int, uint32_t) = nullptr;
    Status (*ActivityRegisterCallbacks)(cupti::BufferRequested, cupti::BufferCompleted) = nullptr;
    Status (*ActivityEnable)(int) = nullptr;
    Status (*ActivityFlushAll)(uint32_t) = nullptr;
    Status (*ActivityGetNextRecord)(uint8_t*, size_t, void**) = nullptr;
};

struct Kind {
    uint64_t name;
    int32_t grid[3], block[3];
    bool operator==(const Kind& other) const { return !memcmp(this, &other, sizeof *this); }
};
static_assert(sizeof(Kind) == 32, "it is compared and hashed by its bytes");

uint64_t hash_of(const void* data, size_t size) {
    uint64_t hash = 14695981039346656037ull;  // FNV-1a
    for (size_t i = 0; i < size; i++) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211ull;
    return hash;
}

struct KindHash {
    size_t operator()(const Kind& kind) const { return hash_of(&kind, sizeof kind); }
};

struct Timed {
    std::string name;
    unsigned long long launches = 0, in_graphs = 0, nanoseconds = 0, least = ~0ull, most = 0;
    int registers = 0, fixed_shared = 0, dynamic_shared = 0;
};

struct State {
    std::mutex lock;           // of what is written
    std::mutex snapshot_lock;  // taken before the others: CUPTI may deliver times while a snapshot waits for the GPU
    std::mutex image_lock;     // of the images
    std::string folder, wanted, why, snapshot_why;
    pid_t process = 0;
    uint32_t version = 0, device = 0;
    Driver driver;
    Cupti cupti;
    Handle subscriber = nullptr;
    std::unordered_map<Kind, Timed, KindHash> timed;
    unsigned long long unfinished = 0, first = ~0ull, last = 0, left = 0, window = 0, opened = 0;
    std::chrono::steady_clock::time_point written;
    std::condition_variable ended;
    std::thread flushing;
    bool ending = false, closed = false;
    std::string device_name;
    // of the snapshot
    std::atomic<bool> done{false}, no_memory{false};
    long seen = 0, launch = 1;
    unsigned long long most_bytes = 1ull << 30;
    int images = 0;
    std::vector<std::string> image_files;
};

// Never destroyed: CUPTI's own thread may still come while the process ends.
State& state = *new State;

template <class Function>
void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c < 32 || c > 126) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
            out += escaped;
        } else {
            out += static_cast<char>(c);
        }
    }
    return out + '"';
}

std::string demangled(const std::string& name) {
    int status = 0;
    char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    std::string found = status == 0 && text ? text : name;
    free(text);
    return found;
}

bool ours() { return getpid() == state.process; }  // a fork has our memory, and none of CUDA's threads

// Times.

std::string triple(const int32_t* values) {
    char text[64];
    snprintf(text, sizeof text, "[%d,%d,%d]", values[0], values[1], values[2]);
    return text;
}

// Writes the record; the lock is held. A reader finds the old one or the new one.
void write_record() {
    std::string path = state.folder + "/" + std::to_string(state.process) + ".device.json";
    std::string partial = path + ".partial";
    FILE* file = fopen(partial.c_str(), "w");
    if (!file) return;
    fprintf(file, "{\"cupti\":%u,\"why\":%s,\"device\":%s,\"unfinished\":%llu,\"span_ns\":%llu,\"snapshot_why\":%s,\"kernels\":[",
            state.version, quoted(state.why).c_str(), quoted(state.device_name).c_str(), state.unfinished,
            state.last > state.first ? state.last - state.first : 0ull, quoted(state.snapshot_why).c_str());
    const char* comma = "";
    for (auto& [kind, timed] : state.timed) {
        fprintf(file, "%s{\"symbol\":%s,\"grid\":%s,\"block\":%s,\"launches\":%llu,\"in_graphs\":%llu,\"ns\":%llu,"
                "\"least_ns\":%llu,\"most_ns\":%llu,\"registers\":%d,\"static_shared\":%d,\"dynamic_shared\":%d}",
                comma, quoted(timed.name).c_str(), triple(kind.grid).c_str(),
                triple(kind.block).c_str(), timed.launches, timed.in_graphs, timed.nanoseconds, timed.least, timed.most,
                timed.registers, timed.fixed_shared, timed.dynamic_shared);
        comma = ",";
    }
    fprintf(file, "]}\n");
    bool whole = !ferror(file);
    if (fclose(file) == 0 && whole) rename(partial.c_str(), path.c_str());
    state.written = std::chrono::steady_clock::now();
}

void add(const cupti::KernelRecord& record) {
    if (state.left && state.left--) return;
    if (!record.start || record.end <= record.start) {
        state.unfinished++;
        return;
    }
    if (!state.opened) state.opened = record.start;
    if (state.window && record.start > state.opened + state.window) return;
    const char* name = record.name ? record.name : "?";
    Kind kind = {hash_of(name, strlen(name)), {}, {}};
    std::copy(record.grid, record.grid + 3, kind.grid);
    std::copy(record.block, record.block + 3, kind.block);
    auto found = state.timed.find(kind);
    if (found == state.timed.end()) {
        if (state.timed.size() >= MOST_KINDS) kind = {kind.name, {}, {}};
        found = state.timed.try_emplace(kind).first;
        found->second.name = name;
    }
    Timed& timed = found->second;
    unsigned long long took = record.end - record.start;
    timed.launches++;
    timed.in_graphs += record.graph != 0;
    timed.nanoseconds += took;
    timed.least = std::min(timed.least, took);
    timed.most = std::max(timed.most, took);
    timed.registers = record.registers;
    timed.fixed_shared = record.fixed_shared;
    timed.dynamic_shared = record.dynamic_shared;
    state.device = record.device;
    state.first = std::min<unsigned long long>(state.first, record.start);
    state.last = std::max<unsigned long long>(state.last, record.end);
}

void buffer_requested(uint8_t** buffer, size_t* size, size_t* most_records) {
    *size = BUFFER_BYTES;
    *most_records = 0;
    void* memory = nullptr;
    if (posix_memalign(&memory, 8, BUFFER_BYTES)) *size = 0;
    *buffer = static_cast<uint8_t*>(memory);
}

void buffer_completed(Handle, uint32_t, uint8_t* buffer, size_t, size_t valid) {
    try {
        std::lock_guard<std::mutex> hold(state.lock);
        void* record = nullptr;
        while (!state.closed && valid && state.cupti.ActivityGetNextRecord(buffer, valid, &record) == 0) {
            auto& kernel = *static_cast<const cupti::KernelRecord*>(record);
            if (kernel.kind == cupti::CONCURRENT_KERNEL) add(kernel);
        }
        // Half the period: flushing hands over several buffers, and a program may end within the next one.
        auto waited = std::chrono::steady_clock::now() - state.written;
        if (!state.closed && ours() && waited > std::chrono::milliseconds(FLUSH_MILLISECONDS / 2)) write_record();
    } catch (...) {  // no memory: the program goes on
    }
    free(buffer);
}

// A program that is killed keeps what was seen. CUPTI's own period hands over full buffers only, and few programs fill one.
void keep_flushing() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are for the program's threads
    state.flushing = std::thread([] {
        std::unique_lock<std::mutex> hold(state.lock);
        auto period = std::chrono::milliseconds(FLUSH_MILLISECONDS);
        while (!state.ended.wait_for(hold, period, [] { return state.ending; })) {
            hold.unlock();
            state.cupti.ActivityFlushAll(0);
            hold.lock();
        }
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_flushing() {
    {
        std::lock_guard<std::mutex> hold(state.lock);
        state.ending = true;
    }
    state.ended.notify_all();
    if (state.flushing.joinable()) state.flushing.join();
}

void finish() {
    if (!ours()) return;
    try {
        stop_flushing();
        if (state.cupti.ActivityFlushAll) state.cupti.ActivityFlushAll(cupti::FLUSH_FORCED);
        int device = 0;
        char name[128] = "";
        if (state.driver.DeviceGet && state.driver.DeviceGet(&device, static_cast<int>(state.device)) == 0)
            state.driver.DeviceGetName(name, sizeof name, device);
        std::lock_guard<std::mutex> hold(state.lock);
        state.device_name = name;
        if (state.no_memory) state.snapshot_why = "the process had no memory left for it";
        if (!state.wanted.empty() && !state.done && state.snapshot_why.empty())
            state.snapshot_why = state.seen ? "the kernel was launched only " + std::to_string(state.seen) + " times"
                                            : "no kernel of that name was launched";
        write_record();
        state.closed = true;
    } catch (...) {
    }
}

// The snapshot of one launch.

struct Launch {
    const char* symbol;
    Handle function;
    unsigned grid[3], block[3], shared;
    Handle stream;
    void** parameters;
    void** extra;
    unsigned cluster[3];
    int cooperative;
};

struct Block {
    Address base;
    size_t size;
    bool operator<(const Block& other) const { return base < other.base; }
};

struct Variable {
    std::string name;
    Address base;
    size_t size;
};

// What is being kept between the entry of a launch and its return, by the thread that launches.
struct Taken {
    std::string folder, symbol;
    std::vector<Block> blocks;
    std::vector<Variable> variables;
    bool has_cubin = false;
};
thread_local Taken* taken = nullptr;
thread_local bool busy = false;

// Copies device memory to a file.
bool keep(Address base, size_t size, const std::string& path) {
    FILE* file = fopen(path.c_str(), "wb");
    if (!file) return false;
    std::vector<char> chunk(std::min(size, CHUNK_BYTES));
    bool whole = true;
    for (size_t at = 0; at < size && whole; at += chunk.size()) {
        size_t part = std::min(chunk.size(), size - at);
        whole = state.driver.MemcpyDtoH(chunk.data(), base + at, part) == 0 && fwrite(chunk.data(), 1, part, file) == part;
    }
    return fclose(file) == 0 && whole;
}

bool keep_memory(const Taken& kept, const char* when) {
    bool whole = true;
    for (size_t i = 0; i < kept.blocks.size(); i++)
        whole = whole && keep(kept.blocks[i].base, kept.blocks[i].size, kept.folder + "/memory-" + std::to_string(i) + when);
    for (size_t i = 0; i < kept.variables.size(); i++)
        whole = whole &&
                keep(kept.variables[i].base, kept.variables[i].size, kept.folder + "/variable-" + std::to_string(i) + when);
    return whole;
}

std::string read_file(const std::string& path) {
    std::string data;
    if (FILE* file = fopen(path.c_str(), "rb")) {
        char part[1 << 16];
        for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) data.append(part, got);
        fclose(file);
    }
    return data;
}

// Returns the names of a cubin's variables: symbols of type OBJECT. Nothing for what is no whole ELF image.
std::vector<std::string> variable_names(const std::string& image) {
    std::vector<std::string> names;
    auto read = [&](size_t at, void* to, size_t size) {
        if (at > image.size() || size > image.size() - at) return false;
        memcpy(to, image.data() + at, size);
        return true;
    };
    uint64_t table = 0;
    uint16_t entry = 0, count = 0;
    if (image.compare(0, 4, "\x7f" "ELF") || !read(40, &table, 8) || !read(58, &entry, 2) || !read(60, &count, 2)) return names;
    for (size_t section = 0; section < count; section++) {
        size_t header = table + section * entry;
        uint32_t type = 0, link = 0;
        uint64_t offset = 0, size = 0, strings = 0;
        if (!read(header + 4, &type, 4) || type != 2) continue;  // 2: a table of symbols
        if (!read(header + 24, &offset, 8) || !read(header + 32, &size, 8) || !read(header + 40, &link, 4)) continue;
        if (!read(table + size_t(link) * entry + 24, &strings, 8) || size > image.size()) continue;
        for (size_t symbol = offset; symbol + 24 <= offset + size; symbol += 24) {
            uint32_t name = 0;
            uint8_t info = 0;
            uint64_t bytes = 0;
            if (!read(symbol, &name, 4) || !read(symbol + 4, &info, 1) || !read(symbol + 16, &bytes, 8)) break;
            if ((info & 15) == 1 && bytes && strings + name < image.size()) names.emplace_back(image.c_str() + strings + name);
        }
    }
    return names;
}

// Returns the block of device memory in which a word points; of size 0 if it is no such address.
Block block_of(Address word, unsigned* type) {
    *type = 0;
    if (word < LEAST_ADDRESS || word >> ADDRESS_BITS) return {0, 0};
    if (state.driver.PointerGetAttribute(type, cuda::ATTRIBUTE_MEMORY_TYPE, word)) {
        *type = 0;
        return {0, 0};
    }
    Block block = {0, 0};
    bool here = *type == cuda::MEMORY_DEVICE || *type == cuda::MEMORY_UNIFIED;
    if (!here || state.driver.MemGetAddressRange(&block.base, &block.size, word)) return {0, 0};
    return block;
}

std::vector<std::pair<size_t, size_t>> layout_of(Handle function) {
    std::vector<std::pair<size_t, size_t>> layout;
    for (size_t i = 0;; i++) {
        size_t offset = 0, size = 0;
        Status failed = 1;
        if (state.driver.FuncGetParamInfo) failed = state.driver.FuncGetParamInfo(function, i, &offset, &size);
        if (failed && state.driver.KernelGetParamInfo) failed = state.driver.KernelGetParamInfo(function, i, &offset, &size);
        if (failed) return layout;
        layout.push_back({offset, size});
    }
}

std::vector<uint8_t> arguments_of(const Launch& launch, const std::vector<std::pair<size_t, size_t>>& layout) {
    size_t total = 0;
    for (auto& [offset, size] : layout) total = std::max(total, offset + size);
    std::vector<uint8_t> bytes(total);
    if (launch.parameters) {
        for (size_t i = 0; i < layout.size(); i++)
            if (launch.parameters[i]) memcpy(&bytes[layout[i].first], launch.parameters[i], layout[i].second);
    } else if (launch.extra) {
        for (void** word = launch.extra; reinterpret_cast<uintptr_t>(*word) != cuda::EXTRA_END; word += 2)
            if (reinterpret_cast<uintptr_t>(*word) == cuda::EXTRA_BUFFER && word[1]) memcpy(bytes.data(), word[1], total);
    }
    return bytes;
}

// Returns the module of a function or a kernel, and the function of the kernel; loads both if they are not yet.
Handle module_of(Handle& function) {
    const Driver& d = state.driver;
    Handle module = nullptr, given = function;
    bool known = d.FuncGetModule && d.FuncGetModule(&module, function) == 0;
    if (!known && d.KernelGetFunction && d.KernelGetFunction(&function, given) == 0)
        known = d.FuncGetModule && d.FuncGetModule(&module, function) == 0;
    if (known && d.FuncLoad) d.FuncLoad(function);
    return known ? module : nullptr;
}

bool write_file(const std::string& path, const std::string& data) {
    FILE* file = fopen(path.c_str(), "wb");
    if (!file) return false;
    bool whole = fwrite(data.data(), 1, data.size(), file) == data.size();
    return fclose(file) == 0 && whole;
}

// Keeps the newest image that has the kernel's code, and returns it; nothing if none was loaded so far.
std::string keep_cubin(Taken& kept) {
    std::lock_guard<std::mutex> hold(state.image_lock);
    std::string image, section = ".text." + kept.symbol;
    for (auto& path : state.image_files) {
        std::string data = read_file(path);
        if (memmem(data.data(), data.size(), section.c_str(), section.size() + 1)) image = std::move(data);
    }
    kept.has_cubin = !image.empty() && write_file(kept.folder + "/cubin", image);
    return image;
}

// Writes `launch`, which names everything else in a snapshot's folder, and collects the memory that is to be kept.
std::string describe(const Launch& launch, Taken& kept) {
    Handle function = launch.function;
    Handle module = module_of(function);
    auto layout = layout_of(launch.function);
    if (layout.empty() && !state.driver.FuncGetParamInfo) return "the driver is older than CUDA 12.4 and does not tell arguments";
    auto bytes = arguments_of(launch, layout);
    std::string text = "kernel-lsp-launch 1\n";
    auto line = [&](const char* key, std::initializer_list<unsigned long long> values) {
        text += key;
        for (auto value : values) text += " " + std::to_string(value);
        text += "\n";
    };
    text += std::string("symbol ") + launch.symbol + "\n";
    line("grid", {launch.grid[0], launch.grid[1], launch.grid[2]});
    line("block", {launch.block[0], launch.block[1], launch.block[2]});
    line("shared", {launch.shared});
    if (launch.cluster[0]) line("cluster", {launch.cluster[0], launch.cluster[1], launch.cluster[2]});
    if (launch.cooperative) line("cooperative", {1});
    for (int attribute : {cuda::FUNCTION_MOST_DYNAMIC, cuda::FUNCTION_CARVEOUT, cuda::FUNCTION_ANY_CLUSTER}) {
        int value = -1;
        if (state.driver.FuncGetAttribute(&value, attribute, function) == 0 && value >= 0)
            line("attribute", {static_cast<unsigned>(attribute), static_cast<unsigned>(value)});
    }
    for (auto& [offset, size] : layout) line("parameter", {offset, size});
    text += "arguments ";
    for (uint8_t byte : bytes) {
        char two[3];
        snprintf(two, sizeof two, "%02x", byte);
        text += two;
    }
    text += bytes.empty() ? "-\n" : "\n";

    std::set<Block> blocks;
    std::set<Address> windows;
    for (size_t offset = 0; offset + 8 <= bytes.size(); offset += 8) {
        Address word = 0;
        unsigned type = 0;
        memcpy(&word, &bytes[offset], 8);
        Block block = block_of(word, &type);
        if (type == cuda::MEMORY_HOST) line("host", {offset});
        if (!block.size) continue;
        line("pointer", {offset});
        blocks.insert(block);
        windows.insert((word + 7) & ~7ull);
    }
    // Tables of pointers: one level further, where an argument points.
    auto direct = blocks;
    for (Address start : windows) {
        auto block = std::prev(direct.upper_bound({start, 0}));
        size_t size = std::min<size_t>(WINDOW_BYTES, block->base + block->size - start) / 8;
        std::vector<Address> words(size);
        if (!size || state.driver.MemcpyDtoH(words.data(), start, size * 8)) continue;
        for (size_t i = 0; i < size; i++) {
            unsigned type = 0;
            Block found = block_of(words[i], &type);
            if (!found.size) continue;
            line("word", {start + 8 * i});
            blocks.insert(found);
        }
    }
    unsigned long long whole = 0;
    for (auto& block : blocks) whole += block.size;
    if (whole > state.most_bytes)
        return "its arguments point into " + std::to_string(whole >> 20) + " MiB of memory, and at most " +
               std::to_string(state.most_bytes >> 20) + " are kept";
    kept.blocks.assign(blocks.begin(), blocks.end());
    for (auto& block : kept.blocks) line("memory", {block.base, block.size});

    auto names = variable_names(keep_cubin(kept));
    for (auto& name : module ? names : std::vector<std::string>()) {
        Variable variable = {name, 0, 0};
        if (state.driver.ModuleGetGlobal(&variable.base, &variable.size, module, name.c_str())) continue;
        if (!variable.size || variable.size > MOST_VARIABLE_BYTES) continue;
        kept.variables.push_back(variable);
        text += "variable " + name + " " + std::to_string(variable.size) + "\n";
    }
    return write_file(kept.folder + "/launch", text) ? "" : "its folder cannot be written to";
}

bool is_wanted(const char* symbol) {
    thread_local std::unordered_map<uint64_t, bool> known;  // demangling takes longer than a launch
    auto [found, fresh] = known.try_emplace(hash_of(symbol, strlen(symbol)));
    if (fresh) found->second = strstr(symbol, state.wanted.c_str()) || demangled(symbol).find(state.wanted) != std::string::npos;
    return found->second;
}

// Lets calls through that another stream's capture would forbid, for as long as it lives.
class Relaxed {
    int mode_ = cuda::CAPTURE_MODE_RELAXED;

  public:
    Relaxed() { state.driver.ThreadExchangeStreamCaptureMode(&mode_); }
    ~Relaxed() { state.driver.ThreadExchangeStreamCaptureMode(&mode_); }
};

void say(const std::string& why) {
    std::lock_guard<std::mutex> hold(state.lock);
    state.snapshot_why = why;
}

void stop(const std::string& why) {
    say(why);
    state.done = true;
}

void entered(const Launch& launch) {
    if (!launch.symbol || state.done || !is_wanted(launch.symbol)) return;
    std::lock_guard<std::mutex> hold(state.snapshot_lock);
    if (state.done || ++state.seen < state.launch) return;
    int capturing = 0;
    if (state.driver.StreamIsCapturing(launch.stream, &capturing) || capturing) {
        say("it was launched within the capture of a CUDA graph");
        return;
    }
    say("");
    Relaxed relaxed;
    auto* kept = new Taken{state.folder + "/" + std::to_string(state.process) + ".taking", launch.symbol, {}, {}};
    mkdir(kept->folder.c_str(), 0700);
    std::string why = state.driver.CtxSynchronize() ? "the GPU had failed before it" : describe(launch, *kept);
    if (why.empty() && !keep_memory(*kept, ".before")) why = "its memory could not be copied to the disk";
    if (!why.empty()) {
        delete kept;
        stop(why);
        return;
    }
    state.done = true;  // no other launch is kept
    taken = kept;
}

void returned(const cupti::CallbackData& data) {
    Taken* kept = taken;
    taken = nullptr;
    std::lock_guard<std::mutex> hold(state.snapshot_lock);
    Relaxed relaxed;
    if (data.returned && *static_cast<const int*>(data.returned))
        stop("the launch failed with error " + std::to_string(*static_cast<const int*>(data.returned)));
    else if (state.driver.CtxSynchronize())
        stop("the kernel failed on the GPU");
    else if (!keep_memory(*kept, ".after"))
        stop("its memory could not be copied to the disk");
    else if (!kept->has_cubin && keep_cubin(*kept).empty())
        stop("no module that was loaded holds its machine code");
    else
        rename(kept->folder.c_str(), (state.folder + "/" + std::to_string(state.process) + ".snapshot").c_str());
    delete kept;
}

void loaded(const cupti::ModuleData* module) {
    if (!module || !module->cubin || !module->size || (state.done && !taken)) return;
    std::string part = state.wanted.substr(0, state.wanted.find_first_of("<(: "));  // in a mangled name as it stands
    if (!memmem(module->cubin, module->size, part.data(), part.size())) return;
    std::lock_guard<std::mutex> hold(state.image_lock);
    std::string path = state.folder + "/" + std::to_string(state.process) + "-" + std::to_string(state.images++) + ".cubin";
    if (write_file(path, std::string(module->cubin, module->size))) state.image_files.push_back(path);
}

Launch plain(const cuda::LaunchKernelParameters& p, const char* symbol, bool cooperative) {
    Launch launch = {symbol, p.function, {}, {}, p.shared, p.stream, p.parameters, nullptr, {}, cooperative};
    if (!cooperative) launch.extra = p.extra;
    std::copy(p.grid, p.grid + 3, launch.grid);
    std::copy(p.block, p.block + 3, launch.block);
    return launch;
}

Launch extended(const cuda::LaunchKernelExParameters& p, const char* symbol) {
    const cuda::LaunchConfig& config = *p.config;
    Launch launch = {symbol, p.function, {}, {}, config.shared, config.stream, p.parameters, p.extra, {}, 0};
    std::copy(config.grid, config.grid + 3, launch.grid);
    std::copy(config.block, config.block + 3, launch.block);
    for (unsigned i = 0; i < config.count; i++) {
        const cuda::LaunchAttribute& attribute = config.attributes[i];
        if (attribute.id == cuda::LAUNCH_CLUSTER) std::copy(attribute.value.cluster, attribute.value.cluster + 3, launch.cluster);
        if (attribute.id == cuda::LAUNCH_COOPERATIVE) launch.cooperative = attribute.value.cooperative;
    }
    return launch;
}

Launch launch_of(uint32_t call, const cupti::CallbackData& data) {
    using namespace cupti;
    Launch launch;
    if (call == LAUNCH_KERNEL_EX || call == LAUNCH_KERNEL_EX_PTSZ)
        launch = extended(*static_cast<const cuda::LaunchKernelExParameters*>(data.parameters), data.symbol);
    else
        launch = plain(*static_cast<const cuda::LaunchKernelParameters*>(data.parameters), data.symbol,
                       call == LAUNCH_COOPERATIVE || call == LAUNCH_COOPERATIVE_PTSZ);
    bool per_thread = call == LAUNCH_KERNEL_PTSZ || call == LAUNCH_COOPERATIVE_PTSZ || call == LAUNCH_KERNEL_EX_PTSZ;
    if (per_thread && !launch.stream) launch.stream = reinterpret_cast<Handle>(cuda::STREAM_PER_THREAD);
    return launch;
}

void called(void*, int domain, uint32_t call, const void* data) {
    if (!ours()) return;
    try {
        if (domain == cupti::DOMAIN_RESOURCE) {  // also of what a call of ours loads
            auto* resource = static_cast<const cupti::ResourceData*>(data);
            loaded(static_cast<const cupti::ModuleData*>(resource->descriptor));
            return;
        }
    } catch (...) {
        return;
    }
    if (busy) return;
    busy = true;
    try {
        auto& callback = *static_cast<const cupti::CallbackData*>(data);
        if (callback.site != cupti::ENTER) {
            if (taken) returned(callback);
        } else if (!state.done) {
            entered(launch_of(call, callback));
        }
    } catch (...) {
        state.done = state.no_memory = true;
    }
    busy = false;
}

// Start.

void* loaded_cupti() {
    for (const char* name : {"libcupti.so.13", "libcupti.so.14", "libcupti.so.12"})  // a second one would not see the first
        if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
    const char* named = getenv("KERNEL_LSP_CUPTI");
    return named ? dlopen(named, RTLD_NOW) : nullptr;
}

void find_calls(void* library, void* driver) {
    Cupti& c = state.cupti;
    find(library, "cuptiGetVersion", c.GetVersion);
    find(library, "cuptiSubscribe", c.Subscribe);
    find(library, "cuptiEnableCallback", c.EnableCallback);
    find(library, "cuptiActivityRegisterCallbacks", c.ActivityRegisterCallbacks);
    find(library, "cuptiActivityEnable", c.ActivityEnable);
    find(library, "cuptiActivityFlushAll", c.ActivityFlushAll);
    find(library, "cuptiActivityGetNextRecord", c.ActivityGetNextRecord);
    Driver& d = state.driver;
    find(driver, "cuStreamIsCapturing", d.StreamIsCapturing);
    find(driver, "cuThreadExchangeStreamCaptureMode", d.ThreadExchangeStreamCaptureMode);
    find(driver, "cuCtxSynchronize", d.CtxSynchronize);
    find(driver, "cuFuncGetParamInfo", d.FuncGetParamInfo);
    find(driver, "cuKernelGetParamInfo", d.KernelGetParamInfo);
    find(driver, "cuKernelGetFunction", d.KernelGetFunction);
    find(driver, "cuFuncGetModule", d.FuncGetModule);
    find(driver, "cuFuncLoad", d.FuncLoad);
    find(driver, "cuFuncGetAttribute", d.FuncGetAttribute);
    find(driver, "cuModuleGetGlobal_v2", d.ModuleGetGlobal);
    find(driver, "cuPointerGetAttribute", d.PointerGetAttribute);
    find(driver, "cuMemGetAddressRange_v2", d.MemGetAddressRange);
    find(driver, "cuMemcpyDtoH_v2", d.MemcpyDtoH);
    find(driver, "cuDeviceGet", d.DeviceGet);
    find(driver, "cuDeviceGetName", d.DeviceGetName);
}

bool watch_launches() {
    const Cupti& c = state.cupti;
    const Driver& d = state.driver;
    bool known = c.Subscribe && c.EnableCallback && d.StreamIsCapturing && d.ThreadExchangeStreamCaptureMode && d.CtxSynchronize &&
                 d.FuncGetAttribute && d.ModuleGetGlobal && d.PointerGetAttribute && d.MemGetAddressRange && d.MemcpyDtoH;
    if (!known) {
        state.snapshot_why = "the driver or libcupti lacks a call that this needs";
        return false;
    }
    if (Status failed = c.Subscribe(&state.subscriber, called, nullptr)) {
        state.snapshot_why = failed == cupti::MULTIPLE_SUBSCRIBERS ? "another profiler is in the program"
                                                                   : "cuptiSubscribe failed with " + std::to_string(failed);
        return false;
    }
    using namespace cupti;
    for (uint32_t call : {LAUNCH_KERNEL, LAUNCH_KERNEL_PTSZ, LAUNCH_COOPERATIVE, LAUNCH_COOPERATIVE_PTSZ, LAUNCH_KERNEL_EX,
                          LAUNCH_KERNEL_EX_PTSZ})
        c.EnableCallback(1, state.subscriber, DOMAIN_DRIVER, call);
    c.EnableCallback(1, state.subscriber, DOMAIN_RESOURCE, MODULE_LOADED);
    return true;
}

std::string start() {
    void* library = loaded_cupti();
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return std::string("libcupti cannot be loaded");
    if (!driver) return "libcuda.so.1 cannot be loaded";
    find_calls(library, driver);
    const Cupti& c = state.cupti;
    if (!c.GetVersion || c.GetVersion(&state.version)) return "libcupti does not tell its version";
    if (state.version < cupti::LEAST_VERSION) return "libcupti is older than that of CUDA 12";
    if (!c.ActivityRegisterCallbacks || !c.ActivityEnable || !c.ActivityFlushAll || !c.ActivityGetNextRecord)
        return "libcupti lacks a call that this needs";
    if (!state.wanted.empty()) watch_launches();
    if (Status failed = c.ActivityRegisterCallbacks(buffer_requested, buffer_completed))
        return "cuptiActivityRegisterCallbacks failed with " + std::to_string(failed);
    if (Status failed = c.ActivityEnable(cupti::CONCURRENT_KERNEL))
        return failed == cupti::MULTIPLE_SUBSCRIBERS ? "another profiler is in the program"
                                                     : "cuptiActivityEnable failed with " + std::to_string(failed);
    keep_flushing();
    return "";
}

std::string variable(const char* name) {
    const char* value = getenv(name);
    return value ? value : "";
}

}  // namespace

// The driver calls this within cuInit.
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
    try {
        state.folder = variable("KERNEL_LSP_CAPTURE");
        std::string rank = variable("RANK");
        std::string recorded = variable("KERNEL_LSP_CAPTURE_RANK");
        bool other = !rank.empty() && rank != recorded && recorded != "all";
        if (state.folder.empty() || other || state.process == getpid()) return 1;
        state.process = getpid();
        state.left = strtoull(variable("KERNEL_LSP_CAPTURE_AFTER").c_str(), nullptr, 10);
        state.window = static_cast<unsigned long long>(1e9 * atof(variable("KERNEL_LSP_CAPTURE_WINDOW").c_str()));
        state.wanted = variable("KERNEL_LSP_SNAPSHOT");
        std::string launch = variable("KERNEL_LSP_SNAPSHOT_LAUNCH"), bytes = variable("KERNEL_LSP_SNAPSHOT_BYTES");
        if (!launch.empty()) state.launch = atol(launch.c_str());
        if (!bytes.empty()) state.most_bytes = strtoull(bytes.c_str(), nullptr, 10);
        state.why = start();
        atexit(finish);
        std::lock_guard<std::mutex> hold(state.lock);
        write_record();
    } catch (...) {
    }
    return 1;
}
