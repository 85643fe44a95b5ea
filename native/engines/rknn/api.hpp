// The functions of librknnrt.so as found in the opened library, and what its answers mean.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "engines/dylib.hpp"
#include "engines/rknn/abi.hpp"

namespace pipeline::rknn {

// What came after the first releases is looked up by itself; nullptr where the library is older.
struct Api {
    explicit Api(const std::string& path);

    // Throws `code`, or the one that the status itself stands for.
    void check(int result, Errc code, std::string_view what) const {
        if (result != status::success) fail(result, code, what);
    }
    [[noreturn]] static void fail(int result, Errc code, std::string_view what);
    // Throws Errc::not_installed: the library is too old for `purpose`.
    void require(bool found, std::string_view symbol, std::string_view purpose) const;

    // Fills `info` for which index and the like were set. The size must be the struct's own.
    template <class Info>
    [[nodiscard]] int query(Context context, std::int32_t command, Info& info) const {
        return query_raw(context, command, &info, sizeof info);
    }

    Dylib library;
    InitFn init;
    DestroyFn destroy;
    QueryFn query_raw;
    RunFn run;
    DupContextFn dup_context;
    SetCoreMaskFn set_core_mask;
    InputsSetFn inputs_set;
    OutputsGetFn outputs_get;
    OutputsReleaseFn outputs_release;
    CreateMemFn create_mem;
    CreateMemFromFdFn create_mem_from_fd;
    DestroyMemFn destroy_mem;
    SetIoMemFn set_io_mem;
    SetInputShapesFn set_input_shapes;
    MemSyncFn mem_sync;
};

// RKNN_ERR_TIMEOUT (-2)
[[nodiscard]] std::string status_text(int result);

// One runtime context; destroyed with its owner.
class Handle {
public:
    Handle() = default;
    Handle(const Api& api, Context context) noexcept : api_(&api), context_(context) {}
    Handle(Handle&& other) noexcept
        : api_(std::exchange(other.api_, nullptr)), context_(std::exchange(other.context_, 0)) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(api_, other.api_);
        std::swap(context_, other.context_);
        return *this;
    }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        if (api_ != nullptr) static_cast<void>(api_->destroy(context_));
    }

    [[nodiscard]] Context get() const noexcept { return context_; }
    [[nodiscard]] explicit operator bool() const noexcept { return api_ != nullptr; }

private:
    const Api* api_ = nullptr;
    Context context_ = 0;
};

}  // namespace pipeline::rknn
