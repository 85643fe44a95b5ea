// Looks librknnrt's functions up, by version, and puts its codes into words.
#include "engines/rknn/api.hpp"

#include <array>
#include <cstddef>

namespace pipeline::rknn {
namespace {

constexpr std::array<std::string_view, 14> status_names = {"SUCC",
                                                           "FAIL",
                                                           "TIMEOUT",
                                                           "DEVICE_UNAVAILABLE",
                                                           "MALLOC_FAIL",
                                                           "PARAM_INVALID",
                                                           "MODEL_INVALID",
                                                           "CTX_INVALID",
                                                           "INPUT_INVALID",
                                                           "OUTPUT_INVALID",
                                                           "DEVICE_UNMATCH",
                                                           "INCOMPATILE_PRE_COMPILE_MODEL",
                                                           "INCOMPATILE_OPTIMIZATION_LEVEL_VERSION",
                                                           "TARGET_PLATFORM_UNMATCH"};

// What a status stands for, whatever was called.
Errc meaning(int result, Errc code) noexcept {
    switch (result) {
        case status::device_unavailable:
        case status::device_unmatch:
            return Errc::device;
        case status::malloc_fail:
            return Errc::allocation;
        case status::model_invalid:
        case status::incompatible_pre_compile_model:
        case status::incompatible_optimization_level:
        case status::target_platform_unmatch:
            return Errc::model;
        default:
            return code;
    }
}

std::string_view advice(int result) noexcept {
    switch (result) {
        case status::timeout:
            return "; the NPU did not finish in time, its driver may hang: see dmesg";
        case status::device_unavailable:
            return "; no NPU answers: is the rknpu driver loaded and may this user open its device?";
        case status::malloc_fail:
            return "; out of NPU memory: fewer slots, or binding 'rebind', need less";
        case status::model_invalid:
            return "; the file is damaged, or its toolkit is newer than this librknnrt.so: install the "
                   "librknnrt.so of the toolkit that made it, or convert the model with an older toolkit";
        case status::device_unmatch:
            return "; librknnrt.so and the kernel's rknpu driver do not go together: update the older one";
        case status::incompatible_pre_compile_model:
        case status::incompatible_optimization_level:
            return "; convert the model again with the toolkit of this librknnrt.so's version";
        case status::target_platform_unmatch:
            return "; the model was made for another chip: convert it with target_platform set to this one";
        default:
            return "";
    }
}

}  // namespace

Api::Api(const std::string& path)
    : library(path),
      init(library.symbol<InitFn>("rknn_init")),
      destroy(library.symbol<DestroyFn>("rknn_destroy")),
      query_raw(library.symbol<QueryFn>("rknn_query")),
      run(library.symbol<RunFn>("rknn_run")),
      dup_context(library.find<DupContextFn>("rknn_dup_context")),
      set_core_mask(library.find<SetCoreMaskFn>("rknn_set_core_mask")),
      inputs_set(library.find<InputsSetFn>("rknn_inputs_set")),
      outputs_get(library.find<OutputsGetFn>("rknn_outputs_get")),
      outputs_release(library.find<OutputsReleaseFn>("rknn_outputs_release")),
      create_mem(library.find<CreateMemFn>("rknn_create_mem")),
      create_mem_from_fd(library.find<CreateMemFromFdFn>("rknn_create_mem_from_fd")),
      destroy_mem(library.find<DestroyMemFn>("rknn_destroy_mem")),
      set_io_mem(library.find<SetIoMemFn>("rknn_set_io_mem")),
      set_input_shapes(library.find<SetInputShapesFn>("rknn_set_input_shapes")),
      mem_sync(library.find<MemSyncFn>("rknn_mem_sync")) {}

void Api::fail(int result, Errc code, std::string_view what) {
    throw Error(meaning(result, code),
                std::string(what) + ": " + status_text(result) + std::string(advice(result)));
}

void Api::require(bool found, std::string_view symbol, std::string_view purpose) const {
    if (found) return;
    throw Error(Errc::not_installed, library.path() + ": the library has no " + std::string(symbol) +
                                         ", which is needed for " + std::string(purpose) +
                                         "; install a newer librknnrt.so");
}

std::string status_text(int result) {
    const auto number = " (" + std::to_string(result) + ")";
    if (result > 0 || result <= -static_cast<int>(status_names.size())) return "unknown status" + number;
    return "RKNN_ERR_" + std::string(status_names[static_cast<std::size_t>(-result)]) + number;
}

}  // namespace pipeline::rknn
