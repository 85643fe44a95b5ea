// The C interface of OpenHarmony's Neural Network Runtime, as far as the engine uses it.
// Written from its documented facts (LP64); nothing here is linked, all is looked up at run time.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OH_NNModel;
struct OH_NNCompilation;
struct OH_NNExecutor;
struct NN_TensorDesc;
struct NN_Tensor;

enum OH_NN_ReturnCode : std::int32_t {
    OH_NN_SUCCESS = 0,
    OH_NN_FAILED = 1,
    OH_NN_INVALID_PARAMETER = 2,
    OH_NN_MEMORY_ERROR = 3,
    OH_NN_OPERATION_FORBIDDEN = 4,
    OH_NN_NULL_PTR = 5,
    OH_NN_INVALID_FILE = 6,
    OH_NN_UNAVALIDABLE_DEVICE = 7,  // its own spelling, until API 11
    OH_NN_INVALID_PATH = 8,
    OH_NN_TIMEOUT = 9,
    OH_NN_UNSUPPORTED = 10,
    OH_NN_CONNECTION_EXCEPTION = 11,
    OH_NN_SAVE_CACHE_EXCEPTION = 12,
    OH_NN_DYNAMIC_SHAPE = 13,
    OH_NN_UNAVAILABLE_DEVICE = 14,
};

enum OH_NN_DataType : std::int32_t {
    OH_NN_UNKNOWN = 0,
    OH_NN_BOOL = 1,
    OH_NN_INT8 = 2,
    OH_NN_INT16 = 3,
    OH_NN_INT32 = 4,
    OH_NN_INT64 = 5,
    OH_NN_UINT8 = 6,
    OH_NN_UINT16 = 7,
    OH_NN_UINT32 = 8,
    OH_NN_UINT64 = 9,
    OH_NN_FLOAT16 = 10,
    OH_NN_FLOAT32 = 11,
    OH_NN_FLOAT64 = 12,
};

enum OH_NN_Format : std::int32_t {
    OH_NN_FORMAT_NONE = 0,
    OH_NN_FORMAT_NCHW = 1,
    OH_NN_FORMAT_NHWC = 2,
    OH_NN_FORMAT_ND = 3,
};

enum OH_NN_DeviceType : std::int32_t {
    OH_NN_OTHERS = 0,
    OH_NN_CPU = 1,
    OH_NN_GPU = 2,
    OH_NN_ACCELERATOR = 3,
};

struct OH_NN_QuantParam {
    std::uint32_t quantCount;
    const std::uint32_t* numBits;
    const double* scale;
    const std::int32_t* zeroPoint;
};

struct OH_NN_Tensor {
    std::int32_t dataType;
    std::uint32_t dimensionCount;
    const std::int32_t* dimensions;
    const OH_NN_QuantParam* quantParam;
    std::int32_t type;  // 0: an ordinary tensor
};

struct OH_NN_Memory {
    void* const data;
    const std::size_t length;
};

using NN_OnRunDone = void (*)(void* userData, std::int32_t errCode, void* outputTensor[],
                              std::int32_t outputCount);
using NN_OnServiceDied = void (*)(void* userData);

// Devices. `*name` must be null on entry; the list of ids belongs to the runtime.
OH_NN_ReturnCode OH_NNDevice_GetAllDevicesID(const std::size_t** ids, std::uint32_t* count);
OH_NN_ReturnCode OH_NNDevice_GetName(std::size_t device, const char** name);
OH_NN_ReturnCode OH_NNDevice_GetType(std::size_t device, OH_NN_DeviceType* type);

// Compilation. The path must live until Build has returned.
OH_NNCompilation* OH_NNCompilation_ConstructWithOfflineModelFile(const char* path);
OH_NNCompilation* OH_NNCompilation_ConstructForCache();
OH_NN_ReturnCode OH_NNCompilation_SetDevice(OH_NNCompilation* compilation, std::size_t device);
OH_NN_ReturnCode OH_NNCompilation_SetCache(OH_NNCompilation* compilation, const char* folder,
                                           std::uint32_t version);
OH_NN_ReturnCode OH_NNCompilation_SetPerformanceMode(OH_NNCompilation* compilation, std::int32_t mode);
OH_NN_ReturnCode OH_NNCompilation_SetPriority(OH_NNCompilation* compilation, std::int32_t priority);
OH_NN_ReturnCode OH_NNCompilation_EnableFloat16(OH_NNCompilation* compilation, bool enable);
OH_NN_ReturnCode OH_NNCompilation_Build(OH_NNCompilation* compilation);
void OH_NNCompilation_Destroy(OH_NNCompilation** compilation);

// Executor, in every version.
OH_NNExecutor* OH_NNExecutor_Construct(OH_NNCompilation* compilation);
void OH_NNExecutor_Destroy(OH_NNExecutor** executor);
OH_NN_ReturnCode OH_NNExecutor_GetOutputShape(OH_NNExecutor* executor, std::uint32_t index,
                                              std::int32_t** shape, std::uint32_t* dimensions);

// v1 (API 9 to 10, later deprecated): memory belongs to its executor.
OH_NN_Memory* OH_NNExecutor_AllocateInputMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                std::size_t length);
OH_NN_Memory* OH_NNExecutor_AllocateOutputMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                 std::size_t length);
void OH_NNExecutor_DestroyInputMemory(OH_NNExecutor* executor, std::uint32_t index, OH_NN_Memory** memory);
void OH_NNExecutor_DestroyOutputMemory(OH_NNExecutor* executor, std::uint32_t index, OH_NN_Memory** memory);
OH_NN_ReturnCode OH_NNExecutor_SetInputWithMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                  const OH_NN_Tensor* tensor, const OH_NN_Memory* memory);
OH_NN_ReturnCode OH_NNExecutor_SetOutputWithMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                   const OH_NN_Memory* memory);
OH_NN_ReturnCode OH_NNExecutor_Run(OH_NNExecutor* executor);

// v2 (API 11): tensors belong to the device. A description is copied by what is made from it.
NN_TensorDesc* OH_NNTensorDesc_Create();
OH_NN_ReturnCode OH_NNTensorDesc_Destroy(NN_TensorDesc** description);
OH_NN_ReturnCode OH_NNTensorDesc_GetName(const NN_TensorDesc* description, const char** name);
OH_NN_ReturnCode OH_NNTensorDesc_GetDataType(const NN_TensorDesc* description, OH_NN_DataType* type);
OH_NN_ReturnCode OH_NNTensorDesc_GetFormat(const NN_TensorDesc* description, OH_NN_Format* format);
OH_NN_ReturnCode OH_NNTensorDesc_GetShape(const NN_TensorDesc* description, std::int32_t** shape,
                                          std::size_t* dimensions);
OH_NN_ReturnCode OH_NNTensorDesc_SetShape(NN_TensorDesc* description, const std::int32_t* shape,
                                          std::size_t dimensions);
OH_NN_ReturnCode OH_NNTensorDesc_GetByteSize(const NN_TensorDesc* description, std::size_t* bytes);
NN_Tensor* OH_NNTensor_CreateWithSize(std::size_t device, NN_TensorDesc* description, std::size_t bytes);
OH_NN_ReturnCode OH_NNTensor_Destroy(NN_Tensor** tensor);
void* OH_NNTensor_GetDataBuffer(const NN_Tensor* tensor);
OH_NN_ReturnCode OH_NNTensor_GetSize(const NN_Tensor* tensor, std::size_t* bytes);
OH_NN_ReturnCode OH_NNExecutor_GetInputCount(const OH_NNExecutor* executor, std::size_t* count);
OH_NN_ReturnCode OH_NNExecutor_GetOutputCount(const OH_NNExecutor* executor, std::size_t* count);
NN_TensorDesc* OH_NNExecutor_CreateInputTensorDesc(const OH_NNExecutor* executor, std::size_t index);
NN_TensorDesc* OH_NNExecutor_CreateOutputTensorDesc(const OH_NNExecutor* executor, std::size_t index);
OH_NN_ReturnCode OH_NNExecutor_GetInputDimRange(const OH_NNExecutor* executor, std::size_t index,
                                                std::size_t** smallest, std::size_t** largest,
                                                std::size_t* dimensions);
OH_NN_ReturnCode OH_NNExecutor_RunSync(OH_NNExecutor* executor, NN_Tensor* inputs[], std::size_t input_count,
                                       NN_Tensor* outputs[], std::size_t output_count);

// Not used by the engine: the built-in backend forbids them all. See docs/openharmony.md.
OH_NN_ReturnCode OH_NNExecutor_SetOnRunDone(OH_NNExecutor* executor, NN_OnRunDone callback);
OH_NN_ReturnCode OH_NNExecutor_SetOnServiceDied(OH_NNExecutor* executor, NN_OnServiceDied callback);
OH_NN_ReturnCode OH_NNExecutor_RunAsync(OH_NNExecutor* executor, NN_Tensor* inputs[], std::size_t input_count,
                                        NN_Tensor* outputs[], std::size_t output_count,
                                        std::int32_t timeout_ms, void* userData);

}  // extern "C"

static_assert(sizeof(OH_NN_QuantParam) == 32 && offsetof(OH_NN_QuantParam, zeroPoint) == 24);
static_assert(sizeof(OH_NN_Tensor) == 32 && offsetof(OH_NN_Tensor, dimensions) == 8 &&
              offsetof(OH_NN_Tensor, quantParam) == 16 && offsetof(OH_NN_Tensor, type) == 24);
static_assert(sizeof(OH_NN_Memory) == 16 && offsetof(OH_NN_Memory, length) == 8);
