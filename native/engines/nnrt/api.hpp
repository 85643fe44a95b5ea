// The functions of the runtime that was found, and its return codes in words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "engines/dylib.hpp"
#include "engines/nnrt/abi.hpp"

// clang-format off
#define PIPELINE_NNRT_REQUIRED(X) \
    X(OH_NNDevice_GetAllDevicesID) X(OH_NNDevice_GetName) X(OH_NNDevice_GetType) \
    X(OH_NNCompilation_SetDevice) X(OH_NNCompilation_Build) X(OH_NNCompilation_Destroy) \
    X(OH_NNExecutor_Construct) X(OH_NNExecutor_Destroy)
#define PIPELINE_NNRT_V1(X) \
    X(OH_NNExecutor_AllocateInputMemory) X(OH_NNExecutor_AllocateOutputMemory) \
    X(OH_NNExecutor_DestroyInputMemory) X(OH_NNExecutor_DestroyOutputMemory) \
    X(OH_NNExecutor_SetInputWithMemory) X(OH_NNExecutor_SetOutputWithMemory) X(OH_NNExecutor_Run)
#define PIPELINE_NNRT_V2(X) \
    X(OH_NNTensorDesc_Destroy) X(OH_NNTensorDesc_GetName) X(OH_NNTensorDesc_GetDataType) \
    X(OH_NNTensorDesc_GetFormat) X(OH_NNTensorDesc_GetShape) X(OH_NNTensorDesc_SetShape) \
    X(OH_NNTensor_CreateWithSize) X(OH_NNTensor_Destroy) X(OH_NNTensor_GetDataBuffer) \
    X(OH_NNTensor_GetSize) X(OH_NNExecutor_GetInputCount) X(OH_NNExecutor_GetOutputCount) \
    X(OH_NNExecutor_CreateInputTensorDesc) X(OH_NNExecutor_CreateOutputTensorDesc) \
    X(OH_NNExecutor_RunSync)
#define PIPELINE_NNRT_OPTIONAL(X) \
    X(OH_NNCompilation_ConstructWithOfflineModelFile) X(OH_NNCompilation_ConstructForCache) \
    X(OH_NNCompilation_SetCache) X(OH_NNCompilation_SetPerformanceMode) \
    X(OH_NNCompilation_SetPriority) X(OH_NNCompilation_EnableFloat16) \
    X(OH_NNExecutor_GetOutputShape) X(OH_NNExecutor_GetInputDimRange)
// clang-format on

namespace pipeline::nnrt {

// "OH_NN_TIMEOUT (9)"
[[nodiscard]] std::string code_text(OH_NN_ReturnCode code);
// Whether the service or the device is gone, so that the executor is of no use any more.
[[nodiscard]] bool is_lost(OH_NN_ReturnCode code) noexcept;

// An object of the runtime, destroyed through a pointer to the pointer as its interface wants it.
template <class T, class Destroy>
struct Destroyer {
    Destroy* destroy = nullptr;
    void operator()(T* object) const noexcept { static_cast<void>(destroy(&object)); }
};
using OwnedCompilation =
    std::unique_ptr<OH_NNCompilation, Destroyer<OH_NNCompilation, decltype(OH_NNCompilation_Destroy)>>;
using OwnedExecutor =
    std::unique_ptr<OH_NNExecutor, Destroyer<OH_NNExecutor, decltype(OH_NNExecutor_Destroy)>>;
using OwnedDescription =
    std::unique_ptr<NN_TensorDesc, Destroyer<NN_TensorDesc, decltype(OH_NNTensorDesc_Destroy)>>;

struct Api {
    // Throws Errc::not_installed when there is no library, or neither of the two ways to run.
    explicit Api(const std::string& library);

    // Whether tensors and RunSync are there; else memory of the executor and Run are.
    [[nodiscard]] bool v2() const noexcept { return v2_; }

    // Throws `code` unless the call succeeded, or Errc::device when the device or service is gone.
    // `key`: the setting to blame, if there is one.
    static void check(OH_NN_ReturnCode status, Errc code, std::string_view what, std::string_view key = {});

    // The function, which an option or the model needs. Throws Errc::not_installed naming it.
    template <class Fn>
    [[nodiscard]] Fn need(Fn function, const char* name, const char* why) const {
        if (function == nullptr) missing(name, why);
        return function;
    }

#define X(name) decltype(&::name) name = nullptr;
    PIPELINE_NNRT_REQUIRED(X)
    PIPELINE_NNRT_V1(X)
    PIPELINE_NNRT_V2(X)
    PIPELINE_NNRT_OPTIONAL(X)
#undef X

private:
    [[noreturn]] void missing(const char* name, const char* why) const;

    std::string library_;
    bool v2_ = false;
};

}  // namespace pipeline::nnrt
