// Compiles only if our own declarations have the layout and the numbers of NVIDIA's.
#include <cuda.h>
#include <cupti.h>

#include "cuda_calls.h"

#define SAME(ours, our_member, theirs, their_member) \
    static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member), #our_member)

#if CUPTI_API_VERSION >= 130000
using LatestKernel = CUpti_ActivityKernel10;
#else
using LatestKernel = CUpti_ActivityKernel9;
#endif
SAME(cupti::KernelRecord, registers, LatestKernel, registersPerThread);
SAME(cupti::KernelRecord, start, LatestKernel, start);
SAME(cupti::KernelRecord, end, LatestKernel, end);
SAME(cupti::KernelRecord, device, LatestKernel, deviceId);
SAME(cupti::KernelRecord, grid, LatestKernel, gridX);
SAME(cupti::KernelRecord, block, LatestKernel, blockX);
SAME(cupti::KernelRecord, fixed_shared, LatestKernel, staticSharedMemory);
SAME(cupti::KernelRecord, dynamic_shared, LatestKernel, dynamicSharedMemory);
SAME(cupti::KernelRecord, name, LatestKernel, name);
SAME(cupti::KernelRecord, graph, LatestKernel, graphId);
SAME(cupti::KernelRecord, graph, CUpti_ActivityKernel9, graphId);
SAME(cupti::CallbackData, site, CUpti_CallbackData, callbackSite);
SAME(cupti::CallbackData, parameters, CUpti_CallbackData, functionParams);
SAME(cupti::CallbackData, returned, CUpti_CallbackData, functionReturnValue);
SAME(cupti::CallbackData, symbol, CUpti_CallbackData, symbolName);
SAME(cupti::ResourceData, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME(cupti::ModuleData, size, CUpti_ModuleResourceData, cubinSize);
SAME(cupti::ModuleData, cubin, CUpti_ModuleResourceData, pCubin);
SAME(cuda::LaunchKernelParameters, grid, cuLaunchKernel_params, gridDimX);
SAME(cuda::LaunchKernelParameters, block, cuLaunchKernel_params, blockDimX);
SAME(cuda::LaunchKernelParameters, shared, cuLaunchKernel_params, sharedMemBytes);
SAME(cuda::LaunchKernelParameters, stream, cuLaunchKernel_params, hStream);
SAME(cuda::LaunchKernelParameters, parameters, cuLaunchKernel_params, kernelParams);
SAME(cuda::LaunchKernelParameters, extra, cuLaunchKernel_params, extra);
SAME(cuda::LaunchKernelParameters, parameters, cuLaunchCooperativeKernel_params, kernelParams);
SAME(cuda::LaunchKernelExParameters, parameters, cuLaunchKernelEx_params, kernelParams);
SAME(cuda::LaunchKernelExParameters, extra, cuLaunchKernelEx_params, extra);
SAME(cuda::LaunchConfig, block, CUlaunchConfig, blockDimX);
SAME(cuda::LaunchConfig, stream, CUlaunchConfig, hStream);
SAME(cuda::LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME(cuda::LaunchConfig, count, CUlaunchConfig, numAttrs);
SAME(cuda::LaunchAttribute, value, CUlaunchAttribute, value);
SAME(cuda::AllocationProperties, location, CUmemAllocationProp, location);
SAME(cuda::AllocationProperties, flags, CUmemAllocationProp, allocFlags);
SAME(cuda::AccessDescription, flags, CUmemAccessDesc, flags);
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(sizeof(cuda::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(sizeof(cuda::AccessDescription) == sizeof(CUmemAccessDesc));

static_assert(cuda::ATTRIBUTE_MEMORY_TYPE == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::MEMORY_HOST == CU_MEMORYTYPE_HOST && cuda::MEMORY_DEVICE == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::MEMORY_UNIFIED == CU_MEMORYTYPE_UNIFIED);
static_assert(cuda::LAUNCH_COOPERATIVE == CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
static_assert(cuda::LAUNCH_CLUSTER == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(cuda::FUNCTION_MOST_DYNAMIC == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(cuda::FUNCTION_CARVEOUT == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
static_assert(cuda::FUNCTION_ANY_CLUSTER == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
static_assert(cuda::CAPTURE_MODE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::PINNED == CU_MEM_ALLOCATION_TYPE_PINNED && cuda::ON_DEVICE == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::READ_AND_WRITE == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cupti::MULTIPLE_SUBSCRIBERS == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(cupti::CONCURRENT_KERNEL == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(cupti::FLUSH_FORCED == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(cupti::DOMAIN_DRIVER == CUPTI_CB_DOMAIN_DRIVER_API && cupti::DOMAIN_RESOURCE == CUPTI_CB_DOMAIN_RESOURCE);
static_assert(cupti::MODULE_LOADED == CUPTI_CBID_RESOURCE_MODULE_LOADED && cupti::ENTER == CUPTI_API_ENTER);
static_assert(cupti::LAUNCH_KERNEL == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
static_assert(cupti::LAUNCH_KERNEL_PTSZ == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz);
static_assert(cupti::LAUNCH_COOPERATIVE == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel);
static_assert(cupti::LAUNCH_COOPERATIVE_PTSZ == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz);
static_assert(cupti::LAUNCH_KERNEL_EX == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
static_assert(cupti::LAUNCH_KERNEL_EX_PTSZ == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz);
