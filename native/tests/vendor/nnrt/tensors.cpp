// The calls of API 11: descriptions, tensors of the device, and running on them.
#include <algorithm>

#include "tests/vendor/nnrt/state.hpp"

struct NN_TensorDesc {
    standin::Tensor tensor;
    bool open = false;  // made from a model's tensor, whose size may be left open
};

struct NN_Tensor {
    standin::Tensor tensor;
    std::size_t device = 0;
    std::byte* base = nullptr;
    std::size_t length = 0;
};

namespace {

using standin::State;

NN_TensorDesc* describe(const standin::Tensor& tensor) {
    State& state = State::get();
    auto* description = new NN_TensorDesc{tensor, true};
    state.alive.insert(description);
    ++state.stats.descriptions;
    ++state.stats.live_descriptions;
    return description;
}

NN_TensorDesc* describe_of(const OH_NNExecutor* executor, bool input, std::size_t index) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor")) return nullptr;
    const auto& tensors = input ? executor->model->inputs : executor->model->outputs;
    return index < tensors.size() ? describe(tensors[index]) : nullptr;
}

// Runs on `description` when it is alive.
template <class Action>
OH_NN_ReturnCode with(const NN_TensorDesc* description, bool good, const char* what, Action action) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(description, "description")) return OH_NN_INVALID_PARAMETER;
    if (!good) return state.misuse(what);
    action();
    return OH_NN_SUCCESS;
}

// What is wrong with the tensors of a run; empty: nothing.
std::string problem(State& state, const OH_NNExecutor& executor, bool input, NN_Tensor* const* given,
                    std::size_t count, std::vector<const NN_Tensor*>& seen) {
    const auto& tensors = input ? executor.model->inputs : executor.model->outputs;
    const std::string kind = input ? "input " : "output ";
    if (given == nullptr || count != tensors.size()) return kind + "count differs from the model's";
    for (std::size_t i = 0; i < count; ++i) {
        const std::string place = kind + std::to_string(i) + ": ";
        if (given[i] == nullptr || !state.alive.contains(given[i]))
            return place + "not a tensor that is alive";
        const NN_Tensor& tensor = *given[i];
        if (std::find(seen.begin(), seen.end(), given[i]) != seen.end()) return place + "bound twice";
        seen.push_back(given[i]);
        if (tensor.device != executor.device) return place + "memory of another device";
        if (tensor.tensor.type != tensors[i].type || !tensors[i].takes(tensor.tensor.shape))
            return place + "type or shape differ from the model's";
        if (!state.blocks.at(tensor.base).intact()) return place + "somebody wrote past its end";
        const std::size_t needed = standin::byte_size(tensor.tensor.type, tensor.tensor.shape);
        state.stats.largest_waste =
            std::max<std::uint64_t>(state.stats.largest_waste, tensor.length - needed);
    }
    return "";
}

}  // namespace

extern "C" {

NN_TensorDesc* OH_NNTensorDesc_Create() {
    const std::lock_guard lock(State::get().mutex);
    return describe({});
}

OH_NN_ReturnCode OH_NNTensorDesc_Destroy(NN_TensorDesc** description) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (description == nullptr || !state.usable(*description, "description")) return OH_NN_INVALID_PARAMETER;
    state.alive.erase(*description);
    --state.stats.live_descriptions;
    delete *description;
    *description = nullptr;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNTensorDesc_GetName(const NN_TensorDesc* description, const char** name) {
    return with(description, name != nullptr && *name == nullptr, "GetName: the name is not null on entry",
                [&] { *name = description->tensor.name.c_str(); });
}

OH_NN_ReturnCode OH_NNTensorDesc_GetDataType(const NN_TensorDesc* description, OH_NN_DataType* type) {
    return with(description, type != nullptr, "GetDataType: null", [&] { *type = description->tensor.type; });
}

OH_NN_ReturnCode OH_NNTensorDesc_GetFormat(const NN_TensorDesc* description, OH_NN_Format* format) {
    return with(description, format != nullptr, "GetFormat: null",
                [&] { *format = description->tensor.format; });
}

OH_NN_ReturnCode OH_NNTensorDesc_GetShape(const NN_TensorDesc* description, std::int32_t** shape,
                                          std::size_t* dimensions) {
    return with(description, shape != nullptr && *shape == nullptr && dimensions != nullptr,
                "GetShape: the shape is not null on entry", [&] {
                    // The description's own, as a pointer that could write, which is how it is declared.
                    *shape = const_cast<std::int32_t*>(description->tensor.shape.data());
                    *dimensions = description->tensor.shape.size();
                });
}

OH_NN_ReturnCode OH_NNTensorDesc_SetShape(NN_TensorDesc* description, const std::int32_t* shape,
                                          std::size_t dimensions) {
    return with(description, shape != nullptr || dimensions == 0, "SetShape: null",
                [&] { description->tensor.shape.assign(shape, shape + dimensions); });
}

OH_NN_ReturnCode OH_NNTensorDesc_GetByteSize(const NN_TensorDesc* description, std::size_t* bytes) {
    return with(description, bytes != nullptr, "GetByteSize: null",
                [&] { *bytes = standin::byte_size(description->tensor.type, description->tensor.shape); });
}

NN_Tensor* OH_NNTensor_CreateWithSize(std::size_t device, NN_TensorDesc* description, std::size_t bytes) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(description, "description")) return nullptr;
    const std::size_t needed = standin::byte_size(description->tensor.type, description->tensor.shape);
    if (needed == 0 || bytes < needed) {
        state.misuse("CreateWithSize: " + std::to_string(bytes) + " bytes for a tensor of " +
                     std::to_string(needed));
        return nullptr;
    }
    const auto* block = state.allocate(bytes);
    if (block == nullptr) return nullptr;
    auto* tensor = new NN_Tensor{description->tensor, device, block->base, block->length};
    state.alive.insert(tensor);
    return tensor;
}

OH_NN_ReturnCode OH_NNTensor_Destroy(NN_Tensor** tensor) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (tensor == nullptr || !state.usable(*tensor, "tensor")) return OH_NN_INVALID_PARAMETER;
    state.alive.erase(*tensor);
    state.free(state.blocks.at((*tensor)->base));
    delete *tensor;
    *tensor = nullptr;
    return OH_NN_SUCCESS;
}

void* OH_NNTensor_GetDataBuffer(const NN_Tensor* tensor) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    return state.usable(tensor, "tensor") ? tensor->base : nullptr;
}

OH_NN_ReturnCode OH_NNTensor_GetSize(const NN_Tensor* tensor, std::size_t* bytes) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(tensor, "tensor") || bytes == nullptr) return OH_NN_INVALID_PARAMETER;
    *bytes = tensor->length;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNExecutor_GetInputCount(const OH_NNExecutor* executor, std::size_t* count) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor") || count == nullptr) return OH_NN_INVALID_PARAMETER;
    *count = executor->model->inputs.size();
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNExecutor_GetOutputCount(const OH_NNExecutor* executor, std::size_t* count) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor") || count == nullptr) return OH_NN_INVALID_PARAMETER;
    *count = executor->model->outputs.size();
    return OH_NN_SUCCESS;
}

NN_TensorDesc* OH_NNExecutor_CreateInputTensorDesc(const OH_NNExecutor* executor, std::size_t index) {
    return describe_of(executor, true, index);
}

NN_TensorDesc* OH_NNExecutor_CreateOutputTensorDesc(const OH_NNExecutor* executor, std::size_t index) {
    return describe_of(executor, false, index);
}

OH_NN_ReturnCode OH_NNExecutor_GetInputDimRange(const OH_NNExecutor* executor, std::size_t index,
                                                std::size_t** smallest, std::size_t** largest,
                                                std::size_t* dimensions) {
    static thread_local std::vector<std::size_t> least;
    static thread_local std::vector<std::size_t> most;
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor") || index >= executor->model->inputs.size())
        return OH_NN_INVALID_PARAMETER;
    const auto& tensor = executor->model->inputs[index];
    least.clear();
    most.clear();
    for (const auto size : tensor.shape) {
        const auto fixed = static_cast<std::size_t>(size);
        least.push_back(size == -1 ? tensor.smallest : fixed);
        most.push_back(size == -1 ? tensor.largest : fixed);
    }
    *smallest = least.data();
    *largest = most.data();
    *dimensions = least.size();
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNExecutor_RunSync(OH_NNExecutor* executor, NN_Tensor* inputs[], std::size_t input_count,
                                       NN_Tensor* outputs[], std::size_t output_count) {
    State& state = State::get();
    std::unique_lock lock(state.mutex);
    if (!state.usable(executor, "executor")) return OH_NN_INVALID_PARAMETER;
    const standin::Turn turn(*executor);
    if (!turn.mine()) return state.misuse("RunSync: two threads on one executor");
    std::vector<const NN_Tensor*> seen;
    std::string wrong = problem(state, *executor, true, inputs, input_count, seen);
    if (wrong.empty()) wrong = problem(state, *executor, false, outputs, output_count, seen);
    if (!wrong.empty()) return state.misuse("RunSync: " + wrong);
    if (const auto code = state.begin_run(*executor); code != OH_NN_SUCCESS) return code;
    state.hold_run(lock);
    std::vector<std::vector<std::int32_t>> in_shapes;
    std::vector<std::vector<std::int32_t>> out_shapes;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (std::size_t i = 0; i < input_count; ++i) {
        in_shapes.push_back(inputs[i]->tensor.shape);
        from.push_back(inputs[i]->base);
    }
    for (std::size_t j = 0; j < output_count; ++j) {
        out_shapes.push_back(outputs[j]->tensor.shape);
        to.push_back(outputs[j]->base);
    }
    const standin::Switches switches = state.switches;
    lock.unlock();
    standin::compute(*executor, in_shapes, from, to, out_shapes, switches);
    lock.lock();
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNExecutor_SetOnRunDone(OH_NNExecutor* /*executor*/, NN_OnRunDone /*callback*/) {
    return OH_NN_OPERATION_FORBIDDEN;
}

OH_NN_ReturnCode OH_NNExecutor_SetOnServiceDied(OH_NNExecutor* /*executor*/, NN_OnServiceDied /*callback*/) {
    return OH_NN_OPERATION_FORBIDDEN;
}

OH_NN_ReturnCode OH_NNExecutor_RunAsync(OH_NNExecutor* /*executor*/, NN_Tensor* /*inputs*/[],
                                        std::size_t /*input_count*/, NN_Tensor* /*outputs*/[],
                                        std::size_t /*output_count*/, std::int32_t /*timeout_ms*/,
                                        void* /*userData*/) {
    return OH_NN_OPERATION_FORBIDDEN;
}

}  // extern "C"
