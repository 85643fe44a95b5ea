// Looks the runtime's functions up; those of API 11 may be missing together.
#include "engines/nnrt/api.hpp"

#include <array>

namespace pipeline::nnrt {

std::string code_text(OH_NN_ReturnCode code) {
    static constexpr std::array names = {"SUCCESS",
                                         "FAILED",
                                         "INVALID_PARAMETER",
                                         "MEMORY_ERROR",
                                         "OPERATION_FORBIDDEN",
                                         "NULL_PTR",
                                         "INVALID_FILE",
                                         "UNAVALIDABLE_DEVICE",
                                         "INVALID_PATH",
                                         "TIMEOUT",
                                         "UNSUPPORTED",
                                         "CONNECTION_EXCEPTION",
                                         "SAVE_CACHE_EXCEPTION",
                                         "DYNAMIC_SHAPE",
                                         "UNAVAILABLE_DEVICE"};
    const auto number = static_cast<std::int32_t>(code);
    const bool known = number >= 0 && static_cast<std::size_t>(number) < names.size();
    const std::string name = known ? names[static_cast<std::size_t>(number)] : "unknown code";
    return (known ? "OH_NN_" + name : name) + " (" + std::to_string(number) + ")";
}

bool is_lost(OH_NN_ReturnCode code) noexcept {
    return code == OH_NN_CONNECTION_EXCEPTION || code == OH_NN_UNAVALIDABLE_DEVICE ||
           code == OH_NN_UNAVAILABLE_DEVICE;
}

Api::Api(const std::string& library) : library_(library) {
    const Dylib dylib(library);
#define X(name) name = dylib.symbol<decltype(&::name)>(#name);
    PIPELINE_NNRT_REQUIRED(X)
#undef X
#define X(name) name = dylib.find<decltype(&::name)>(#name);
    PIPELINE_NNRT_V1(X)
    PIPELINE_NNRT_V2(X)
    PIPELINE_NNRT_OPTIONAL(X)
#undef X
    v2_ = true;
#define X(name) v2_ = v2_ && name != nullptr;
    PIPELINE_NNRT_V2(X)
#undef X
    if (v2_) return;
#define X(name) static_cast<void>(need(name, #name, "which is needed where the calls of API 11 are missing"));
    PIPELINE_NNRT_V1(X)
#undef X
}

void Api::check(OH_NN_ReturnCode status, Errc code, std::string_view what, std::string_view key) {
    if (status == OH_NN_SUCCESS) return;
    const std::string text = std::string(what) + ": " + code_text(status);
    if (is_lost(status)) throw Error(Errc::device, text);
    throw Error(code, text, std::string(key));
}

void Api::missing(const char* name, const char* why) const {
    throw Error(Errc::not_installed, library_ + ": the library has no " + name + ", " + why);
}

}  // namespace pipeline::nnrt
