// The C interface of Rockchip's librknnrt.so (RKNPU2, 64-bit), declared from its published facts.
//
// Sizes and offsets hold from 1.5 to 2.3; functions that came later are to be looked up and may be
// missing. Enumerations are plain 32-bit integers, since a library may answer values not listed here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipeline::rknn {

using Context = std::uint64_t;

inline constexpr std::size_t max_dims = 16;
inline constexpr std::size_t max_name = 256;
inline constexpr std::size_t max_dynamic_shapes = 512;

namespace status {
inline constexpr std::int32_t success = 0;
inline constexpr std::int32_t fail = -1;
inline constexpr std::int32_t timeout = -2;
inline constexpr std::int32_t device_unavailable = -3;
inline constexpr std::int32_t malloc_fail = -4;
inline constexpr std::int32_t param_invalid = -5;
inline constexpr std::int32_t model_invalid = -6;
inline constexpr std::int32_t ctx_invalid = -7;
inline constexpr std::int32_t input_invalid = -8;
inline constexpr std::int32_t output_invalid = -9;
inline constexpr std::int32_t device_unmatch = -10;
inline constexpr std::int32_t incompatible_pre_compile_model = -11;
inline constexpr std::int32_t incompatible_optimization_level = -12;
inline constexpr std::int32_t target_platform_unmatch = -13;
}  // namespace status

// Flags of rknn_init, a bit set.
namespace init_flag {
inline constexpr std::uint32_t priority_high = 0x0;
inline constexpr std::uint32_t priority_medium = 0x1;
inline constexpr std::uint32_t priority_low = 0x2;
inline constexpr std::uint32_t async_mask = 0x4;
inline constexpr std::uint32_t collect_perf = 0x8;
inline constexpr std::uint32_t mem_alloc_outside = 0x10;
inline constexpr std::uint32_t share_weight_mem = 0x20;
inline constexpr std::uint32_t fence_in_outside = 0x40;
inline constexpr std::uint32_t fence_out_outside = 0x80;
inline constexpr std::uint32_t collect_model_info_only = 0x100;
inline constexpr std::uint32_t internal_alloc_outside = 0x200;
inline constexpr std::uint32_t fallback_prior_gpu = 0x400;
inline constexpr std::uint32_t enable_sram = 0x800;
inline constexpr std::uint32_t share_sram = 0x1000;
// Without it the library raises the whole process's priority to nice -19.
inline constexpr std::uint32_t disable_proc_high_priority = 0x2000;
inline constexpr std::uint32_t disable_flush_input_mem_cache = 0x4000;
inline constexpr std::uint32_t disable_flush_output_mem_cache = 0x8000;
inline constexpr std::uint32_t model_buffer_zero_copy = 0x10000;
}  // namespace init_flag

// Of rknn_set_core_mask.
namespace core_mask {
inline constexpr std::int32_t automatic = 0;
inline constexpr std::int32_t core_0 = 1;
inline constexpr std::int32_t core_1 = 2;
inline constexpr std::int32_t core_2 = 4;
inline constexpr std::int32_t core_0_1 = 3;
inline constexpr std::int32_t core_0_1_2 = 7;
inline constexpr std::int32_t all = 0xffff;
inline constexpr std::int32_t undefined = 0x10000;
}  // namespace core_mask

// Commands of rknn_query, with the struct that each fills.
namespace query {
inline constexpr std::int32_t in_out_num = 0;                   // InputOutputNum
inline constexpr std::int32_t input_attr = 1;                   // TensorAttr
inline constexpr std::int32_t output_attr = 2;                  // TensorAttr
inline constexpr std::int32_t perf_detail = 3;                  // PerfDetail
inline constexpr std::int32_t perf_run = 4;                     // PerfRun
inline constexpr std::int32_t sdk_version = 5;                  // SdkVersion
inline constexpr std::int32_t mem_size = 6;                     // MemSize
inline constexpr std::int32_t custom_string = 7;                // CustomString
inline constexpr std::int32_t native_input_attr = 8;            // TensorAttr
inline constexpr std::int32_t native_output_attr = 9;           // TensorAttr
inline constexpr std::int32_t native_nhwc_input_attr = 10;      // TensorAttr
inline constexpr std::int32_t native_nhwc_output_attr = 11;     // TensorAttr
inline constexpr std::int32_t device_mem_info = 12;             // TensorMem
inline constexpr std::int32_t input_dynamic_range = 13;         // InputRange
inline constexpr std::int32_t current_input_attr = 14;          // TensorAttr
inline constexpr std::int32_t current_output_attr = 15;         // TensorAttr
inline constexpr std::int32_t current_native_input_attr = 16;   // TensorAttr
inline constexpr std::int32_t current_native_output_attr = 17;  // TensorAttr
}  // namespace query

namespace tensor_type {
inline constexpr std::int32_t float32 = 0;
inline constexpr std::int32_t float16 = 1;
inline constexpr std::int32_t int8 = 2;
inline constexpr std::int32_t uint8 = 3;
inline constexpr std::int32_t int16 = 4;
inline constexpr std::int32_t uint16 = 5;
inline constexpr std::int32_t int32 = 6;
inline constexpr std::int32_t uint32 = 7;
inline constexpr std::int32_t int64 = 8;
inline constexpr std::int32_t boolean = 9;
inline constexpr std::int32_t int4 = 10;
inline constexpr std::int32_t bfloat16 = 11;
}  // namespace tensor_type

namespace quantisation {
inline constexpr std::int32_t none = 0;
inline constexpr std::int32_t dfp = 1;     // TensorAttr::fl
inline constexpr std::int32_t affine = 2;  // TensorAttr::zp and scale
}  // namespace quantisation

namespace tensor_format {
inline constexpr std::int32_t nchw = 0;
inline constexpr std::int32_t nhwc = 1;
inline constexpr std::int32_t nc1hwc2 = 2;
inline constexpr std::int32_t undefined = 3;
}  // namespace tensor_format

// Modes of rknn_mem_sync.
namespace mem_sync {
inline constexpr std::int32_t to_device = 1;
inline constexpr std::int32_t from_device = 2;
inline constexpr std::int32_t bidirectional = 3;
}  // namespace mem_sync

// Flags of rknn_create_mem2.
namespace mem_alloc {
inline constexpr std::uint64_t defaults = 0;  // cacheable
inline constexpr std::uint64_t cacheable = 1;
inline constexpr std::uint64_t non_cacheable = 2;
inline constexpr std::uint64_t try_alloc_sram = 4;
inline constexpr std::uint64_t no_context = 0x20000;  // leaks; not to be used
}  // namespace mem_alloc

// TensorMem::flags: where the memory came from. Ordinals, not bits.
namespace mem_origin {
inline constexpr std::uint32_t alloc_inside = 1;
inline constexpr std::uint32_t from_fd = 2;
inline constexpr std::uint32_t from_phys = 3;
inline constexpr std::uint32_t unknown = 4;
}  // namespace mem_origin

struct InputOutputNum {
    std::uint32_t n_input;
    std::uint32_t n_output;
};

struct TensorAttr {
    std::uint32_t index;  // set by the caller
    std::uint32_t n_dims;
    std::uint32_t dims[max_dims];
    char name[max_name];
    std::uint32_t n_elems;
    std::uint32_t size;  // bytes
    std::int32_t fmt;
    std::int32_t type;
    std::int32_t qnt_type;
    std::int8_t fl;
    std::int32_t zp;
    float scale;
    std::uint32_t w_stride;  // pixels in a row, 0 for the width
    std::uint32_t size_with_stride;
    std::uint8_t pass_through;
    std::uint32_t h_stride;  // set by the caller, 0 for the height
};

struct InputRange {
    std::uint32_t index;  // set by the caller
    std::uint32_t shape_number;
    std::int32_t fmt;
    char name[max_name];
    std::uint32_t dyn_range[max_dynamic_shapes][max_dims];
    std::uint32_t n_dims;
};

struct PerfDetail {
    char* perf_data;  // the library's
    std::uint64_t data_len;
};

struct PerfRun {
    std::int64_t run_duration;  // microseconds
};

struct SdkVersion {
    char api_version[256];
    char drv_version[256];
};

struct MemSize {
    std::uint32_t total_weight_size;
    std::uint32_t total_internal_size;
    std::uint64_t total_dma_allocated_size;
    std::uint32_t total_sram_size;
    std::uint32_t free_sram_size;
    std::uint32_t reserved[10];
};

struct CustomString {
    char string[1024];
};

struct TensorMem {
    void* virt_addr;
    std::uint64_t phys_addr;
    std::int32_t fd;
    std::int32_t offset;
    std::uint32_t size;
    std::uint32_t flags;
    void* priv_data;
};

struct Input {
    std::uint32_t index;
    void* buf;
    std::uint32_t size;
    std::uint8_t pass_through;
    std::int32_t type;
    std::int32_t fmt;
};

struct Output {
    std::uint8_t want_float;
    std::uint8_t is_prealloc;
    std::uint32_t index;
    void* buf;
    std::uint32_t size;
};

struct InitExtend {
    Context ctx;
    std::int32_t real_model_offset;
    std::uint32_t real_model_size;
    std::int32_t model_buffer_fd;
    std::uint32_t model_buffer_flags;
    std::uint8_t reserved[112];
};

struct RunExtend {
    std::uint64_t frame_id;
    std::int32_t non_block;
    std::int32_t timeout_ms;
    std::int32_t fence_fd;
};

struct OutputExtend {
    std::uint64_t frame_id;
};

static_assert(sizeof(void*) == 8, "the 32-bit interface is another one");
static_assert(sizeof(InputOutputNum) == 8 && alignof(InputOutputNum) == 4);
static_assert(sizeof(TensorAttr) == 376 && alignof(TensorAttr) == 4);
static_assert(offsetof(TensorAttr, n_dims) == 4 && offsetof(TensorAttr, dims) == 8 &&
              offsetof(TensorAttr, name) == 72 && offsetof(TensorAttr, n_elems) == 328 &&
              offsetof(TensorAttr, size) == 332 && offsetof(TensorAttr, fmt) == 336 &&
              offsetof(TensorAttr, type) == 340 && offsetof(TensorAttr, qnt_type) == 344 &&
              offsetof(TensorAttr, fl) == 348 && offsetof(TensorAttr, zp) == 352 &&
              offsetof(TensorAttr, scale) == 356 && offsetof(TensorAttr, w_stride) == 360 &&
              offsetof(TensorAttr, size_with_stride) == 364 && offsetof(TensorAttr, pass_through) == 368 &&
              offsetof(TensorAttr, h_stride) == 372);
static_assert(sizeof(InputRange) == 33040 && alignof(InputRange) == 4);
static_assert(offsetof(InputRange, shape_number) == 4 && offsetof(InputRange, fmt) == 8 &&
              offsetof(InputRange, name) == 12 && offsetof(InputRange, dyn_range) == 268 &&
              offsetof(InputRange, n_dims) == 33036);
static_assert(sizeof(PerfDetail) == 16 && alignof(PerfDetail) == 8 && offsetof(PerfDetail, data_len) == 8);
static_assert(sizeof(PerfRun) == 8 && alignof(PerfRun) == 8);
static_assert(sizeof(SdkVersion) == 512 && offsetof(SdkVersion, drv_version) == 256);
static_assert(sizeof(MemSize) == 64 && alignof(MemSize) == 8);
static_assert(offsetof(MemSize, total_internal_size) == 4 &&
              offsetof(MemSize, total_dma_allocated_size) == 8 && offsetof(MemSize, total_sram_size) == 16 &&
              offsetof(MemSize, free_sram_size) == 20 && offsetof(MemSize, reserved) == 24);
static_assert(sizeof(CustomString) == 1024);
static_assert(sizeof(TensorMem) == 40 && alignof(TensorMem) == 8);
static_assert(offsetof(TensorMem, phys_addr) == 8 && offsetof(TensorMem, fd) == 16 &&
              offsetof(TensorMem, offset) == 20 && offsetof(TensorMem, size) == 24 &&
              offsetof(TensorMem, flags) == 28 && offsetof(TensorMem, priv_data) == 32);
static_assert(sizeof(Input) == 32 && alignof(Input) == 8);
static_assert(offsetof(Input, buf) == 8 && offsetof(Input, size) == 16 &&
              offsetof(Input, pass_through) == 20 && offsetof(Input, type) == 24 &&
              offsetof(Input, fmt) == 28);
static_assert(sizeof(Output) == 24 && alignof(Output) == 8);
static_assert(offsetof(Output, is_prealloc) == 1 && offsetof(Output, index) == 4 &&
              offsetof(Output, buf) == 8 && offsetof(Output, size) == 16);
static_assert(sizeof(InitExtend) == 136 && alignof(InitExtend) == 8);
static_assert(offsetof(InitExtend, real_model_offset) == 8 && offsetof(InitExtend, real_model_size) == 12 &&
              offsetof(InitExtend, model_buffer_fd) == 16 && offsetof(InitExtend, model_buffer_flags) == 20 &&
              offsetof(InitExtend, reserved) == 24);
static_assert(sizeof(RunExtend) == 24 && alignof(RunExtend) == 8);
static_assert(offsetof(RunExtend, non_block) == 8 && offsetof(RunExtend, timeout_ms) == 12 &&
              offsetof(RunExtend, fence_fd) == 16);
static_assert(sizeof(OutputExtend) == 8);

// The functions' pointer types, each named after its symbol "rknn_<name>".
extern "C" {
using InitFn = int (*)(Context* context, void* model, std::uint32_t size, std::uint32_t flags,
                       InitExtend* extend);  // size 0: `model` is a path
using DupContextFn = int (*)(Context* from, Context* to);
using DestroyFn = int (*)(Context context);
using QueryFn = int (*)(Context context, std::int32_t command, void* info, std::uint32_t size);
using InputsSetFn = int (*)(Context context, std::uint32_t count, Input* inputs);
using SetCoreMaskFn = int (*)(Context context, std::int32_t mask);
using SetBatchCoreNumFn = int (*)(Context context, int cores);
using RunFn = int (*)(Context context, RunExtend* extend);
using WaitFn = int (*)(Context context, RunExtend* extend);  // unsupported on every known chip
using OutputsGetFn = int (*)(Context context, std::uint32_t count, Output* outputs, OutputExtend* extend);
using OutputsReleaseFn = int (*)(Context context, std::uint32_t count, Output* outputs);
using CreateMemFn = TensorMem* (*)(Context context, std::uint32_t size);
using CreateMem2Fn = TensorMem* (*)(Context context, std::uint64_t size, std::uint64_t flags);  // 2.0
using CreateMemFromFdFn = TensorMem* (*)(Context context, std::int32_t fd, void* base, std::uint32_t size,
                                         std::int32_t offset);  // `base` is without the offset
using CreateMemFromPhysFn = TensorMem* (*)(Context context, std::uint64_t phys, void* virt,
                                           std::uint32_t size);
using DestroyMemFn = int (*)(Context context, TensorMem* mem);
using SetWeightMemFn = int (*)(Context context, TensorMem* mem);
using SetInternalMemFn = int (*)(Context context, TensorMem* mem);
using SetIoMemFn = int (*)(Context context, TensorMem* mem, TensorAttr* attr);
using SetInputShapesFn = int (*)(Context context, std::uint32_t count, TensorAttr* attrs);
using MemSyncFn = int (*)(Context context, TensorMem* mem, std::int32_t mode);  // 1.6
}  // extern "C"

}  // namespace pipeline::rknn
