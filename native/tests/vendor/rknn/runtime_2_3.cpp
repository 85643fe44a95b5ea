// What version 2.3 of the runtime has beyond 1.5.
#include "memory.hpp"

namespace standin {

const char* const runtime_version = "librknnrt version: 2.3.2 (stand-in)" + sizeof "librknnrt version:";

}  // namespace standin

using namespace standin;

STANDIN_EXPORT rknn::TensorMem* rknn_create_mem2(rknn::Context handle, std::uint64_t size,
                                                 std::uint64_t flags) {
    namespace alloc = rknn::mem_alloc;
    const Call call("rknn_create_mem2", handle, Uses::memory);
    if (call.refused()) return nullptr;
    const bool both = (flags & alloc::cacheable) != 0 && (flags & alloc::non_cacheable) != 0;
    if (both || (flags & ~(alloc::cacheable | alloc::non_cacheable | alloc::try_alloc_sram)) != 0) {
        call.misuse(rknn::status::param_invalid, "flags that contradict, leak or are unknown");
        return nullptr;
    }
    return make_memory(call, size, (flags & alloc::non_cacheable) == 0);
}

STANDIN_EXPORT int rknn_mem_sync(rknn::Context handle, rknn::TensorMem* mem, std::int32_t mode) {
    const Call call("rknn_mem_sync", handle, Uses::memory);
    return call.refused() ? call.code() : synchronise(call, mem, mode);
}

static_assert(std::is_same_v<decltype(&rknn_create_mem2), rknn::CreateMem2Fn>);
static_assert(std::is_same_v<decltype(&rknn_mem_sync), rknn::MemSyncFn>);
