"""Symbols of built host libraries: those that no kernel needs are named, whatever the text calls them."""

# ruff: noqa: E501 (C++ as it is written)

import subprocess
from pathlib import Path

import pytest

from kernel_lsp.compiler.host.compiler import compile_host, host_compiler
from kernel_lsp.compiler.host.symbols import data_in_code, forbidden_symbols, undefined_symbols

pytestmark = pytest.mark.skipif(host_compiler() is None, reason="no g++")

EXTENSION = """
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <atomic>
#include <chrono>
#include <random>
static std::mutex lock;
static std::atomic<int> calls{0};
double run(double x) {
  std::lock_guard<std::mutex> held(lock);
  auto start = std::chrono::steady_clock::now();
  std::mt19937 generator(calls++);
  if (x < 0) { fprintf(stderr, "failed\\n"); exit(EXIT_FAILURE); }
  if (x > 1e30) abort();
  printf("%f\\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return x * static_cast<double>(generator());
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def plain(text: str, folder: Path, *flags: str) -> bytes:
    """A library of C++ alone, without the thin header."""
    found = host_compiler()
    assert found is not None
    source, library = folder / "library.cpp", folder / "library.so"
    source.write_text(text)
    command = [str(found[0]), "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), *flags]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return library.read_bytes()


@pytest.mark.thorough
def test_an_honest_extension_asks_for_nothing_that_is_forbidden(kept: Path) -> None:
    built = compile_host([EXTENSION], [], kept)
    assert built.library is not None, built.log
    asked = undefined_symbols(built.library)
    assert {"exit", "abort", "printf", "PyObject_Call"} <= asked
    assert forbidden_symbols(built.library) == ()


def test_labels_and_macros_hide_no_symbol_of_an_extension(kept: Path) -> None:
    hidden = """
    extern "C" void* place_of(void*, const char*) __asm__("dlsym");
    #define JOINED(a, b) a##b
    extern "C" int JOINED(mpro, tect)(void*, unsigned long, int);
    void* used(void* p) { JOINED(mpro, tect)(p, 1, 7); return place_of(p, "x"); }
    """
    built = compile_host([hidden + EXTENSION.replace("x * ", "(used(&lock) ? 1 : 2) * ")], [], kept)
    assert built.library is not None, built.log
    assert forbidden_symbols(built.library) == ("dlsym", "mprotect")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#include <dlfcn.h>\nvoid* f(const char* s) { return dlopen(s, 2); }", "dlopen"),
        ("#include <sys/mman.h>\nvoid* f() { return mmap(nullptr, 1, 7, 2, -1, 0); }", "mmap"),
        ("#include <cstdlib>\nint f(const char* s) { return std::system(s); }", "system"),
        ("#include <unistd.h>\nint f() { return fork(); }", "fork"),
        ("#include <unistd.h>\nlong f() { return syscall(1); }", "syscall"),
        ("#include <unistd.h>\nvoid f() { _exit(0); }", "_exit"),
        ("#include <unistd.h>\nint f(char** a) { return execv(a[0], a); }", "execv"),
        ("#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }", "fopen"),
        ("#include <fcntl.h>\nint f() { return open(\"x\", 0); }", "open"),
        ("#include <pthread.h>\nint f(pthread_t* t, void* (*g)(void*)) { return pthread_create(t, 0, g, 0); }", "pthread_create"),
        ("#include <thread>\nvoid f() { std::thread([] {}).detach(); }", "std::thread::_M_start_thread"),
        ("#include <fstream>\nint f() { std::ifstream s(\"x\"); return s.get(); }", "std::basic_ifstream"),
        ("extern \"C\" int cudaDeviceSetLimit(int, unsigned long);\nint f() { return cudaDeviceSetLimit(6, 1); }", "cudaDeviceSetLimit"),
        ("extern \"C\" int cudaLaunchHostFunc(int);\nint f() { return cudaLaunchHostFunc(1); }", "cudaLaunchHostFunc"),
        ("extern \"C\" int cuLaunchHostFunc_ptsz(int);\nint f() { return cuLaunchHostFunc_ptsz(1); }", "cuLaunchHostFunc_ptsz"),
        ("extern \"C\" int cudaStreamAddCallback(int);\nint f() { return cudaStreamAddCallback(1); }", "cudaStreamAddCallback"),
        ("extern \"C\" int cudaUserObjectCreate(int);\nint f() { return cudaUserObjectCreate(1); }", "cudaUserObjectCreate"),
        ("extern \"C\" int cudaGraphAddHostNode(int);\nint f() { return cudaGraphAddHostNode(1); }", "cudaGraphAddHostNode"),
        ("extern \"C\" int cudaGraphAddNode(int);\nint f() { return cudaGraphAddNode(1); }", "cudaGraphAddNode"),
        ("extern \"C\" int cudaGraphExecNodeSetParams(int);\nint f() { return cudaGraphExecNodeSetParams(1); }", "cudaGraphExecNodeSetParams"),
        ("extern \"C\" int cuGraphHostNodeSetParams(int);\nint f() { return cuGraphHostNodeSetParams(1); }", "cuGraphHostNodeSetParams"),
        ("extern \"C\" int cudaStreamGetCaptureInfo_v2(int);\nint f() { return cudaStreamGetCaptureInfo_v2(1); }", "cudaStreamGetCaptureInfo_v2"),
        ("extern \"C\" int cuStreamUpdateCaptureDependencies(int);\nint f() { return cuStreamUpdateCaptureDependencies(1); }", "cuStreamUpdateCaptureDependencies"),
        ("extern \"C\" int cudaStreamBeginCaptureToGraph(int);\nint f() { return cudaStreamBeginCaptureToGraph(1); }", "cudaStreamBeginCaptureToGraph"),
        ("extern \"C\" int cuCtxCreate_v2(int);\nint f() { return cuCtxCreate_v2(1); }", "cuCtxCreate_v2"),
        ("#include <bits/basic_file.h>\nvoid f(__gthread_mutex_t* m) { std::__basic_file<char>(m).open(\"x\", std::ios_base::out); }", "std::__basic_file<char>::open"),
        ("extern char** environ;\nvoid f() { environ = nullptr; }", "environ"),
        ("#include <execinfo.h>\nint f(void** p) { return backtrace(p, 9); }", "backtrace"),
        ("#include <ucontext.h>\nint f(ucontext_t* c) { return setcontext(c); }", "setcontext"),
        ("extern \"C\" int __mprotect(void*, unsigned long, int);\nint f(void* p) { return __mprotect(p, 1, 7); }", "__mprotect"),
        ("extern \"C\" void* _IO_fopen(const char*, const char*);\nvoid* f() { return _IO_fopen(\"x\", \"r\"); }", "_IO_fopen"),
        ("extern \"C\" long __read_chk(int, void*, unsigned long, unsigned long);\nlong f(void* p) { return __read_chk(3, p, 8, 8); }", "__read_chk"),
        ("#include <cstdio>\nint f() { return dprintf(3, \"x\"); }", "dprintf"),
        ("#include <semaphore.h>\nvoid* f() { return sem_open(\"/x\", 0); }", "sem_open"),
        ("#include <pthread.h>\nint f(pthread_attr_t* a) { return pthread_getattr_np(pthread_self(), a); }", "pthread_getattr_np"),
        ("extern \"C\" char** __libc_argv;\nvoid* f() { return __libc_argv; }", "__libc_argv"),
        ("extern \"C\" int cuModuleLoad(void*, const char*);\nint f() { return cuModuleLoad(nullptr, \"x\"); }", "cuModuleLoad"),
        ("extern \"C\" int _PyRun_SimpleFileObject(void*);\nint f() { return _PyRun_SimpleFileObject(nullptr); }", "_PyRun_SimpleFileObject"),
        ("namespace at { struct MapAllocator { static void* makeDataPtr(const char*); }; }\nvoid* f() { return at::MapAllocator::makeDataPtr(\"x\"); }",
         "at::MapAllocator::makeDataPtr"),
        ("namespace c10 { int get_backtrace(int); }\nint f() { return c10::get_backtrace(1); }", "c10::get_backtrace"),
        ("namespace torch::jit::tracer { int pythonCallstack(); }\nint f() { return torch::jit::tracer::pythonCallstack(); }",
         "torch::jit::tracer::pythonCallstack"),
        ("#include <aio.h>\nint f(aiocb* c) { return aio_write(c); }", "aio_write"),
        ("#include <mqueue.h>\nint f(const sigevent* e) { return mq_notify(1, e); }", "mq_notify"),
        ("namespace torch::serialize { struct OutputArchive { void save_to(const char*); }; }\nvoid f(torch::serialize::OutputArchive& a) { a.save_to(\"x\"); }",
         "torch::serialize::OutputArchive::save_to"),
        ("namespace torch::profiler::impl { void registerCUDAMethods(int); }\nvoid f() { torch::profiler::impl::registerCUDAMethods(1); }",
         "torch::profiler::impl::registerCUDAMethods"),
        ("extern \"C\" int cudaIpcOpenMemHandle(int);\nint f() { return cudaIpcOpenMemHandle(1); }", "cudaIpcOpenMemHandle"),
        ("extern \"C\" int cuMemImportFromShareableHandle(int);\nint f() { return cuMemImportFromShareableHandle(1); }", "cuMemImportFromShareableHandle"),
        ("extern \"C\" int cudaGetExportTable(int);\nint f() { return cudaGetExportTable(1); }", "cudaGetExportTable"),
        ("extern \"C\" char _rtld_global[];\nchar* f() { return _rtld_global; }", "_rtld_global"),
        ("extern \"C\" int Py_AddPendingCall(int);\nint f() { return Py_AddPendingCall(1); }", "Py_AddPendingCall"),
        ("extern \"C\" int nvmlDeviceSetGpuLockedClocks(int);\nint f() { return nvmlDeviceSetGpuLockedClocks(1); }", "nvmlDeviceSetGpuLockedClocks"),
        ("namespace at { void addGlobalCallback(int); }\nvoid f() { at::addGlobalCallback(1); }", "at::addGlobalCallback"),
        ("namespace at { void launch(int); }\nvoid f() { at::launch(1); }", "at::launch"),
        ("namespace c10 { void SetAllocator(int); }\nvoid f() { c10::SetAllocator(1); }", "c10::SetAllocator"),
        ("namespace c10 { struct Dispatcher { void registerFallback(int); }; }\nvoid f(c10::Dispatcher& d) { d.registerFallback(1); }",
         "c10::Dispatcher::registerFallback"),
        ("extern \"C\" int PyRun_SimpleString(const char*);\nint f() { return PyRun_SimpleString(\"\"); }", "PyRun_SimpleString"),
        ("namespace at { struct DynamicLibrary { DynamicLibrary(const char*); }; }\nvoid f() { at::DynamicLibrary l(\"x\"); }",
         "at::DynamicLibrary::DynamicLibrary"),
        ("namespace at { struct Context { void setAllowTF32CuBLAS(bool); }; }\nvoid f(at::Context& c) { c.setAllowTF32CuBLAS(true); }",
         "at::Context::setAllowTF32CuBLAS"),
    ],
)  # fmt: skip
def test_what_a_kernel_needs_not_is_named(text: str, named: str, tmp_path: Path) -> None:
    library = plain(text, tmp_path)
    assert any(symbol.startswith(named) for symbol in forbidden_symbols(library)), forbidden_symbols(library)
    assert forbidden_symbols(library, library) == ()


@pytest.mark.parametrize(
    "text",
    [
        "#include <cstdio>\nvoid f() { fprintf(stderr, \"%d\", 1); fflush(stdout); std::puts(\"x\"); }",
        "#include <cstdlib>\nconst char* f() { return std::getenv(\"X\"); }",
        "extern \"C\" int read(int); extern \"C\" int read(int x) { return x; }\nint f() { return read(1); }",
        "#include <cmath>\n#include <complex>\ndouble f(double x) { return std::lgamma(x) + std::abs(std::pow(std::complex<double>(x, 1), 2.0)) + std::fma(x, x, std::erf(x)); }",
        "#include <cstring>\n#include <cstdlib>\n#include <cctype>\nlong f(char* s) { qsort(s, 4, 1, [](const void*, const void*) { return 0; }); return strtol(s, nullptr, 10) + isdigit(*s) + (strstr(s, \"x\") != nullptr); }",
        "#include <ctime>\n#include <unistd.h>\nlong f(timespec* t) { clock_gettime(CLOCK_MONOTONIC, t); usleep(1); return time(nullptr) + sysconf(_SC_NPROCESSORS_ONLN) + getpid(); }",
        "#include <pthread.h>\nint f(pthread_mutex_t* m, pthread_cond_t* c) { return pthread_mutex_lock(m) + pthread_cond_wait(c, m); }",
        "__int128 f(__int128 x, __int128 y) { return x / y; }\n_Float16 g(float x) { return _Float16(x); }",
        "#include <map>\n#include <string>\n#include <regex>\n#include <random>\nint f(const std::string& s) { std::map<std::string, int> m; m[s] = 1; return m.size() + std::regex_match(s, std::regex(\"a\")) + std::random_device()(); }",
        "namespace own { int open(int); }\nint f() { return own::open(1); }",
        "extern \"C\" int cudaLaunchKernel(int), cudaFuncSetAttribute(int);\nint f() { return cudaLaunchKernel(1) + cudaFuncSetAttribute(2); }",
        "extern \"C\" int cudaStreamIsCapturing(int), cudaStreamBeginCapture(int);\nint f() { return cudaStreamIsCapturing(1) + cudaStreamBeginCapture(2); }",
        "extern \"C\" int cuCtxGetCurrent(int), cudaGraphExecKernelNodeSetParams(int);\nint f() { return cuCtxGetCurrent(1) + cudaGraphExecKernelNodeSetParams(2); }",
        "extern \"C\" int cudaGraphAddKernelNode(int), cuMemAlloc_v2(int);\nint f() { return cudaGraphAddKernelNode(1) + cuMemAlloc_v2(2); }",
        "namespace at { void launch_counts(int); }\nnamespace c10 { struct Stream { void set(int); }; }\nvoid f(c10::Stream& s) { at::launch_counts(1); s.set(2); }",
        "#include <sstream>\n#include <iostream>\nvoid f() { std::ostringstream s; s << 1; std::cerr << s.str(); }",
    ],
)  # fmt: skip
def test_what_honest_host_code_asks_for_is_not(text: str, tmp_path: Path) -> None:
    assert forbidden_symbols(plain(text, tmp_path)) == ()


def test_more_than_the_baseline_asks_for_is_named(tmp_path: Path) -> None:
    opens = "#include <cstdio>\nvoid* f() { return std::fopen(\"x\", \"r\"); }\n"  # fmt: skip
    baseline = plain(opens, tmp_path)
    both = plain(opens + "#include <cstdlib>\nint g() { return std::system(\"x\"); }", tmp_path)  # fmt: skip
    assert forbidden_symbols(both, baseline) == ("system",)


@pytest.mark.parametrize("image", [b"", b"no library", b"\x7fELF" + bytes(60)])
def test_an_image_that_cannot_be_read_is_said_to_be_none(image: bytes) -> None:
    with pytest.raises(ValueError, match="built library"):
        undefined_symbols(image)


def test_symbols_cannot_be_stripped(tmp_path: Path) -> None:
    library = plain("#include <dlfcn.h>\nvoid* f(const char* s) { return dlopen(s, 2); }", tmp_path, "-s")
    assert forbidden_symbols(library) == ("dlopen",)


PLACED = '__attribute__((section(".text#"))) extern const unsigned char steps[] = {0x0f, 0x05, 0xc3};\n'
SWITCH = """
static const int table[] = {3, 1, 4, 1, 5};
int f(int x) { switch (x) { case 0: return 7; case 1: return 9; case 2: return x * 3; case 3: return -x; } return table[x % 5]; }
"""


def test_data_among_instructions_are_named(tmp_path: Path) -> None:
    assert data_in_code(plain(PLACED + SWITCH, tmp_path)) == ("steps",)
    assert data_in_code(plain(SWITCH, tmp_path)) == ()


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("-Wl,-z,noseparate-code", ".rodata"),
        ("-Wl,-z,execstack", "the stack"),
        ("-Wl,-z,noseparate-code,-z,separate-code", None),
    ],
)
def test_memory_that_the_linker_lets_run_is_named(option: str, named: str | None, tmp_path: Path) -> None:
    found = data_in_code(plain(SWITCH, tmp_path, option))
    assert next(iter(found), None) == named


@pytest.mark.thorough
def test_what_is_built_here_keeps_constants_out_of_memory_that_may_be_run(kept: Path) -> None:
    built = compile_host([EXTENSION], [], kept)
    assert built.library is not None, built.log
    assert data_in_code(built.library) == ()


def test_a_library_without_a_table_of_its_own_symbols_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`\.symtab`"):
        data_in_code(plain(PLACED + SWITCH, tmp_path, "-s"))
