// MindSpore Lite's C interface, declared from its documented binary facts: no vendor header is used.
// The functions are named without the prefix of their family: OH_AI_ on OpenHarmony, MS elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipeline::mindspore_lite {

using Handle = void*;          // context, device info, model, tensor or allocator
using Status = std::uint32_t;  // signed in the documentation, compared unsigned

inline constexpr Status success = 0;
inline constexpr std::uint32_t model_type_mindir = 0;  // .ms files, too

struct TensorHandleArray {
    std::size_t handle_num;
    Handle* handle_list;
};

struct ShapeInfo {
    std::size_t shape_num;
    std::int64_t shape[32];
};

struct CallBackParam {
    char* node_name;
    char* node_type;
};

using KernelCallBack = bool (*)(TensorHandleArray inputs, TensorHandleArray outputs, CallBackParam node);

// Passed by value, so its layout decides in which registers it travels.
static_assert(sizeof(TensorHandleArray) == 16 && offsetof(TensorHandleArray, handle_list) == 8);
static_assert(sizeof(ShapeInfo) == 264 && offsetof(ShapeInfo, shape) == 8);
static_assert(sizeof(CallBackParam) == 16 && sizeof(bool) == 1);

enum DeviceType : std::int32_t { device_cpu = 0, device_gpu = 1, device_kirin_npu = 2, device_nnrt = 60 };

enum NnrtType : std::int32_t { nnrt_others = 0, nnrt_cpu = 1, nnrt_gpu = 2, nnrt_accelerator = 3 };

enum Format : std::int32_t { format_nchw = 0, format_nhwc = 1 };

enum DataType : std::int32_t {
    type_string = 12,
    type_bool = 30,
    type_i8 = 32,
    type_i16 = 33,
    type_i32 = 34,
    type_i64 = 35,
    type_u8 = 37,
    type_u16 = 38,
    type_u32 = 39,
    type_u64 = 40,
    type_f16 = 42,
    type_f32 = 43,
    type_f64 = 44,
};

// X(name, result, arguments): in every library of either family.
#define PIPELINE_MSLITE_REQUIRED(X)                                                                          \
    X(ContextCreate, Handle, ())                                                                             \
    X(ContextDestroy, void, (Handle*))                                                                       \
    X(ContextSetThreadNum, void, (Handle, std::int32_t))                                                     \
    X(ContextAddDeviceInfo, void, (Handle, Handle))                                                          \
    X(DeviceInfoCreate, Handle, (std::int32_t))                                                              \
    X(DeviceInfoDestroy, void, (Handle*))                                                                    \
    X(ModelCreate, Handle, ())                                                                               \
    X(ModelDestroy, void, (Handle*))                                                                         \
    X(ModelBuildFromFile, Status, (Handle, const char*, std::uint32_t, Handle))                              \
    X(ModelPredict, Status, (Handle, TensorHandleArray, TensorHandleArray*, KernelCallBack, KernelCallBack)) \
    X(ModelGetInputs, TensorHandleArray, (Handle))                                                           \
    X(ModelGetOutputs, TensorHandleArray, (Handle))                                                          \
    X(TensorCreate, Handle,                                                                                  \
      (const char*, std::int32_t, const std::int64_t*, std::size_t, const void*, std::size_t))               \
    X(TensorDestroy, void, (Handle*))                                                                        \
    X(TensorGetName, const char*, (Handle))                                                                  \
    X(TensorGetDataType, std::int32_t, (Handle))                                                             \
    X(TensorGetFormat, std::int32_t, (Handle))                                                               \
    X(TensorSetFormat, void, (Handle, std::int32_t))                                                         \
    X(TensorGetShape, const std::int64_t*, (Handle, std::size_t*))                                           \
    X(TensorGetData, const void*, (Handle))                                                                  \
    X(TensorGetMutableData, void*, (Handle))                                                                 \
    X(TensorGetDataSize, std::size_t, (Handle))

// Each is looked for by itself: they came one by one, and some are in one family only.
#define PIPELINE_MSLITE_OPTIONAL(X)                                                       \
    X(ContextSetThreadAffinityMode, void, (Handle, std::int32_t))                         \
    X(ContextSetThreadAffinityCoreList, void, (Handle, const std::int32_t*, std::size_t)) \
    X(DeviceInfoSetEnableFP16, void, (Handle, bool))                                      \
    X(DeviceInfoSetFrequency, void, (Handle, std::int32_t))                               \
    X(ModelResize, Status, (Handle, TensorHandleArray, ShapeInfo*, std::size_t))          \
    X(GetAllNNRTDeviceDescs, void*, (std::size_t*))                                       \
    X(DestroyAllNNRTDeviceDescs, void, (void**))                                          \
    X(GetElementOfNNRTDeviceDescs, void*, (void*, std::size_t))                           \
    X(GetDeviceIdFromNNRTDeviceDesc, std::size_t, (const void*))                          \
    X(GetNameFromNNRTDeviceDesc, const char*, (const void*))                              \
    X(GetTypeFromNNRTDeviceDesc, std::int32_t, (const void*))                             \
    X(CreateNNRTDeviceInfoByName, Handle, (const char*))                                  \
    X(CreateNNRTDeviceInfoByType, Handle, (std::int32_t))                                 \
    X(DeviceInfoSetDeviceId, void, (Handle, std::size_t))                                 \
    X(DeviceInfoSetPerformanceMode, void, (Handle, std::int32_t))                         \
    X(DeviceInfoSetPriority, void, (Handle, std::int32_t))                                \
    X(DeviceInfoAddExtension, Status, (Handle, const char*, const char*, std::size_t))    \
    X(TensorSetUserData, Status, (Handle, void*, std::size_t))                            \
    X(TensorGetAllocator, Handle, (Handle))                                               \
    X(TensorSetAllocator, Status, (Handle, Handle))

}  // namespace pipeline::mindspore_lite
