// A program for the stub of a GPU: stub_program CUBIN [killed] launches three kernels and prints a sum of the results.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include "cuda_calls.h"

using cuda::Address;
using cuda::Handle;

extern "C" {
int cuInit(unsigned);
int cuMemAlloc_v2(Address*, size_t);
int cuMemcpyHtoD_v2(Address, const void*, size_t);
int cuMemcpyDtoH_v2(void*, Address, size_t);
int cuModuleLoadData(Handle*, const void*);
int cuModuleGetFunction(Handle*, Handle, const char*);
int cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**);
int cuLaunchKernelEx(const cuda::LaunchConfig*, Handle, void**, void**);
int cuptiActivityFlushAll(uint32_t);
}

int main(int argc, char** argv) {
    std::ifstream file(argv[1], std::ios::binary);
    std::string image{std::istreambuf_iterator<char>(file), {}};
    setenv("STUB_IMAGE_BYTES", std::to_string(image.size()).c_str(), 1);
    cuInit(0);
    Handle module, scale, batched, racy;
    cuModuleLoadData(&module, image.data());
    cuModuleGetFunction(&scale, module, "scale_view");
    cuModuleGetFunction(&batched, module, "batched");
    cuModuleGetFunction(&racy, module, "racy");
    Address data, out, table, rows[2], counter;
    cuMemAlloc_v2(&data, 4096);
    cuMemAlloc_v2(&out, 4096);
    cuMemAlloc_v2(&table, 16);
    cuMemAlloc_v2(&counter, 4);
    for (auto& row : rows) cuMemAlloc_v2(&row, 400);
    float values[1024];
    for (int i = 0; i < 1024; i++) values[i] = float(i);
    cuMemcpyHtoD_v2(data, values, 4096);
    cuMemcpyHtoD_v2(rows[0], values, 400);
    cuMemcpyHtoD_v2(rows[1], values, 400);
    cuMemcpyHtoD_v2(table, rows, 16);
    struct {
        Address data, out;
        int n;
        float scale;
    } view = {data, out, 1000, 3};
    int n = 100;
    void *of_scale[] = {&view}, *of_batched[] = {&table, &n}, *of_racy[] = {&counter};
    cuda::LaunchConfig config = {{2, 1, 1}, {64, 1, 1}, 0, nullptr, nullptr, 0};
    for (int round = 0; round < 3; round++) {
        cuLaunchKernel(scale, 8, 1, 1, 128, 1, 1, 0, nullptr, of_scale, nullptr);
        cuLaunchKernelEx(&config, batched, of_batched, nullptr);
    }
    cuLaunchKernel(racy, 1, 1, 1, 1, 1, 1, 0, nullptr, of_racy, nullptr);
    if (argc > 2 && !strcmp(argv[2], "killed")) {
        sleep(3);
        raise(SIGKILL);
    }
    float sum = 0, back[1024];
    cuMemcpyDtoH_v2(back, out, 4096);
    for (float one : back) sum += one;
    cuMemcpyDtoH_v2(back, rows[1], 400);
    for (int i = 0; i < 100; i++) sum += back[i];
    printf("%a\n", double(sum));
    return 5;
}
