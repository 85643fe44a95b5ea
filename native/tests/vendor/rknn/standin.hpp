// What the stand-in librknnrt.so exports beside the vendor's functions. See README.md.
#pragma once

#include <cstdint>

namespace standin {

// Counts of the whole process since the library was opened.
struct Stats {
    std::uint64_t calls;            // into any function of the vendor's interface
    std::uint64_t runs;             // that computed
    std::uint64_t allocations;      // rknn_create_mem*, successful
    std::uint64_t live_mems;        // created and not destroyed
    std::uint64_t live_contexts;    // initialised and not destroyed
    std::uint64_t live_outputs;     // of rknn_outputs_get, allocated by the library, not released
    std::uint64_t live_weights;     // sets of weights; duplicated contexts share one
    std::uint64_t misuse;           // calls that broke a rule, each told on stderr
    std::uint64_t binds;            // rknn_set_io_mem
    std::uint64_t binds_ignored;    // of those, by STANDIN_RKNN_REBIND=ignore
    std::uint64_t syncs;            // rknn_mem_sync
    std::uint64_t copies;           // of whole tensors, by rknn_inputs_set and rknn_outputs_get
    std::uint64_t copied_bytes;     // on the caller's side of these
    std::uint64_t conversions;      // of tensors bound in another layout or type than the native one
    std::uint64_t internal_bytes;   // live: of each context, duplicated ones too
    std::uint64_t device_cpu_ns;    // processor time that stands for the NPU's
    std::uint64_t copy_cpu_ns;      // processor time of rknn_inputs_set and rknn_outputs_get
    std::uint64_t priority_raises;  // contexts that let the library raise the process's priority
};

extern "C" {
// Fills `out`; `size` is sizeof(Stats). 0, or -5 for another size.
using StatsFn = int (*)(Stats* out, std::uint32_t size);  // standin_stats
// The text of the last misuse, cut to `size` bytes with the final zero; its whole length.
using LastMisuseFn = std::uint32_t (*)(char* text, std::uint32_t size);  // standin_last_misuse
// Ends every run that hangs, now and later until the next rknn_init.
using ReleaseHangsFn = void (*)();  // standin_release_hangs
// Runs that hang at this moment.
using HangingFn = std::uint32_t (*)();  // standin_hanging
}

}  // namespace standin
