// Looks the functions up under the names of either family, and puts status codes into words.
#include "engines/mindspore_lite/api.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <mutex>

namespace pipeline::mindspore_lite {
namespace {

struct NamedStatus {
    std::int32_t value;
    std::string_view name;
};

constexpr std::array<NamedStatus, 25> statuses = {{
    {1, "CORE_FAILED"},
    {-1, "LITE_ERROR"},
    {-2, "NULLPTR"},
    {-3, "PARAM_INVALID"},
    {-4, "NO_CHANGE"},
    {-5, "SUCCESS_EXIT"},
    {-6, "MEMORY_FAILED"},
    {-7, "NOT_SUPPORT"},
    {-8, "THREADPOOL_ERROR"},
    {-9, "UNINITIALIZED_OBJ"},
    {-10, "FILE_ERROR"},
    {-11, "SERVICE_DENY"},
    {-12, "MODEL_REBUILD"},
    {-100, "OUT_OF_TENSOR_RANGE"},
    {-101, "INPUT_TENSOR_ERROR"},
    {-102, "REENTRANT_ERROR"},
    {-200, "GRAPH_FILE_ERROR"},
    {-300, "NOT_FIND_OP"},
    {-301, "INVALID_OP_NAME"},
    {-302, "INVALID_OP_ATTR"},
    {-303, "OP_EXECUTE_FAILURE"},
    {-400, "FORMAT_ERROR"},
    {-500, "INFER_ERROR"},
    {-501, "INFER_INVALID"},
    {-600, "INPUT_PARAM_INVALID"},
}};

// Symbols are named family plus name; on OpenHarmony with an underscore between.
std::string prefix_of(std::string_view family) { return family == "OH_AI" ? "OH_AI_" : std::string(family); }

std::string_view family_of(const Dylib& dylib) {
    using Create = Handle (*)();
    for (const std::string_view family : {"OH_AI", "MS"}) {
        if (dylib.find<Create>((prefix_of(family) + "ModelCreate").c_str()) != nullptr) return family;
    }
    throw Error(Errc::not_installed,
                dylib.path() +
                    ": the library has neither OH_AI_ModelCreate nor MSModelCreate, so it is not "
                    "MindSpore Lite's C library");
}

std::timed_mutex listing;  // of whatever library: two of them may share their list

// A call that hangs with the lock must not be another model's hang. By the system's clock, as GCC 12's
// ThreadSanitizer does not see a lock that was taken by the steady one.
std::unique_lock<std::timed_mutex> lock_listing() {
    return std::unique_lock(listing, std::chrono::system_clock::now() + std::chrono::seconds(5));
}

}  // namespace

std::string status_text(Status status) {
    char number[16];
    std::snprintf(number, sizeof number, "0x%X", status);
    for (const auto& known : statuses) {
        if (static_cast<Status>(known.value) == status) return std::string(known.name) + " (" + number + ")";
    }
    return std::string("status ") + number;
}

Api::Api(const std::string& library) : dylib_(library), family_(family_of(dylib_)) {
    const std::string prefix = prefix_of(family_);
#define X(name, result, args) name = dylib_.symbol<decltype(name)>((prefix + #name).c_str());
    PIPELINE_MSLITE_REQUIRED(X)
#undef X
#define X(name, result, args) name = dylib_.find<decltype(name)>((prefix + #name).c_str());
    PIPELINE_MSLITE_OPTIONAL(X)
#undef X
}

Handle Api::allocator_of(Handle tensor) const {
    if (TensorGetAllocator == nullptr || TensorSetAllocator == nullptr) return nullptr;
    const auto lock = lock_listing();
    return TensorGetAllocator(tensor);
}

Status Api::set_allocator(Handle tensor, Handle allocator) const {
    const auto lock = lock_listing();
    return TensorSetAllocator(tensor, allocator);
}

void Api::destroy_model(Handle model) const {
    const auto lock = lock_listing();
    ModelDestroy(&model);
}

}  // namespace pipeline::mindspore_lite
