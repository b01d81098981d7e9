// FlashAttention-3's forward kernel of Hopper, whose host code makes its parameters. A first kernel makes them instead,
// in the GPU's memory, from pointers and tensor maps; a second one is `cutlass::device_kernel` with that as its source.

#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"

#include "tile_scheduler.hpp"
#include "flash_fwd_kernel_sm90.h"
#include "mainloop_fwd_sm90_tma_gmma_ws.hpp"
#include "epilogue_fwd.hpp"

using namespace cute;

constexpr int ROWS = 128, COLUMNS = 64, DEPTH = 64, STAGES = 2;
using Element = cutlass::half_t;
using Cluster = Shape<_1, _1, _1>;
using Mainloop = flash::CollectiveMainloopFwdSm90<
    STAGES, Cluster, Shape<Int<ROWS>, Int<COLUMNS>, Int<DEPTH>>, DEPTH, Element, float, cutlass::arch::Sm90, false, false,
    false, false, false, false, false, true, true, false, false, false>;
using Epilogue = flash::CollectiveEpilogueFwd<
    Shape<Int<ROWS>, Int<DEPTH>, Int<COLUMNS>>, Cluster, Element, cutlass::arch::Sm90, Mainloop::NumMmaThreads, false,
    false, false>;
using Attention = flash::FlashAttnFwdSm90<Mainloop, Epilogue, flash::StaticPersistentTileScheduler<false>>;

template <class Copy>
__device__ Copy with_map(CUtensorMap const& map) {
    Copy copy;
    copy.tma_desc_ = map;
    return copy;
}

extern "C" __global__ void prepare(
    Attention::Params* made, Element* q, Element* k, Element* v, Element* o, float* lse, int queries, int keys, int heads,
    int batch, float scale, const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
    const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o) {
    using cutlass::FastDivmod;
    int const depth = DEPTH;
    int64_t const row = int64_t(heads) * depth;
    Mainloop::ShapeQKV const of_q{queries, depth, heads, batch}, of_k{keys, depth, heads, batch};
    Mainloop::StrideQK const step_q{row, {}, DEPTH, queries * row}, step_k{row, {}, DEPTH, keys * row}, none{};
    auto const load_k = with_map<Mainloop::TMA_K>(map_k);
    auto const load_v = with_map<Mainloop::TMA_V>(map_v);
    new (&made->mainloop) Mainloop::Params{
        q, of_q, step_q, of_q, step_q, k, of_k, step_k, v, DEPTH, step_k, nullptr, of_k, none, nullptr, none, nullptr, none,
        of_q, none, nullptr, {}, {}, nullptr, {}, false, nullptr, {}, {}, FastDivmod(1), FastDivmod(1), FastDivmod(1),
        with_map<Mainloop::TMA_Q>(map_q), load_k, load_v, load_k, load_v, nullptr, scale * float(M_LOG2E), nullptr, nullptr,
        nullptr, {}, {}, {}, 0.f, -1, -1, FastDivmod(1), 1};
    Epilogue::ShapeO const of_o{queries, depth, heads, batch, 1};
    Epilogue::StrideO const step_o{row, {}, DEPTH, queries * row, 0};
    Epilogue::StrideLSE const step_lse{{}, queries, int64_t(heads) * queries, 0};
    new (&made->epilogue) Epilogue::Params{
        o, of_o, step_o, of_o, step_o, nullptr, step_o, step_o, lse, step_lse, select<0, 2, 3, 4>(of_o), step_lse, nullptr,
        step_lse, step_lse, FastDivmod(1), with_map<Epilogue::TMA_O>(map_o)};
    int const blocks = (queries + ROWS - 1) / ROWS;
    made->scheduler = {blocks * heads * batch, FastDivmod(blocks), FastDivmod(heads), FastDivmod(1)};
}

extern "C" __global__ void __launch_bounds__(Attention::MaxThreadsPerBlock, 1) attention(Attention::Params const* made) {
    extern __shared__ char shared[];
    static_assert(sizeof(Attention::Params) <= 4096 && Attention::SharedStorageSize <= 100000);
    Attention()(*made, shared);
}
