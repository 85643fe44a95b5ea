// The calls before API 11: memory of an executor, bound to it until it is replaced.
#include <algorithm>

#include "tests/vendor/nnrt/state.hpp"

namespace {

using standin::State;

OH_NN_Memory* allocate(OH_NNExecutor* executor, bool input, std::uint32_t index, std::size_t length) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor")) return nullptr;
    const auto& tensors = input ? executor->model->inputs : executor->model->outputs;
    if (index >= tensors.size()) return nullptr;
    auto* block = state.allocate(length);
    if (block == nullptr) return nullptr;
    block->executor = executor;
    block->input = input;
    block->index = index;
    auto* memory = new OH_NN_Memory{block->base, length};
    state.alive.insert(memory);
    return memory;
}

// Wrong memory is left as it is, and so leaks; the caller is told nothing.
void destroy(OH_NNExecutor* executor, bool input, std::uint32_t index, OH_NN_Memory** memory) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor, whose memory is freed,")) return;
    if (memory == nullptr || !state.usable(*memory, "memory")) return;
    const auto block = state.blocks.find((*memory)->data);
    if (block == state.blocks.end() || block->second.executor != executor || block->second.input != input ||
        block->second.index != index) {
        state.misuse("Destroy*Memory: not memory of this executor and tensor");
        return;
    }
    state.free(block->second);
    state.alive.erase(*memory);
    delete *memory;
    *memory = nullptr;
}

OH_NN_ReturnCode bind(OH_NNExecutor* executor, bool input, std::uint32_t index, const OH_NN_Tensor* tensor,
                      const OH_NN_Memory* memory) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor")) return OH_NN_INVALID_PARAMETER;
    if (executor->running) return state.misuse("Set*WithMemory: two threads on one executor");
    const auto& tensors = input ? executor->model->inputs : executor->model->outputs;
    if (index >= tensors.size() || memory == nullptr || memory->data == nullptr)
        return state.misuse("Set*WithMemory: no such tensor, or no memory");
    ++state.stats.binds;
    const auto& expected = tensors[index];
    std::vector<std::int32_t> shape = expected.shape;
    if (input) {
        if (tensor == nullptr) return state.misuse("SetInputWithMemory: no description");
        shape.assign(tensor->dimensions, tensor->dimensions + tensor->dimensionCount);
        // The caller's declaration is wrong, which is no fault of how it uses the runtime.
        if (tensor->dataType != expected.type || tensor->type != 0 || !expected.takes(shape))
            return OH_NN_INVALID_PARAMETER;
    }
    const std::size_t needed = standin::byte_size(expected.type, shape);
    if (memory->length == 0 || memory->length < needed) return OH_NN_INVALID_PARAMETER;
    if (state.switches.fail_bind == (input ? "input" : "output")) return OH_NN_MEMORY_ERROR;
    // Whether it is memory of the driver at all shows in Run.
    auto& binding = (input ? executor->inputs : executor->outputs)[index];
    binding = {static_cast<std::byte*>(memory->data), memory->length};
    return OH_NN_SUCCESS;
}

std::string problem(State& state, const OH_NNExecutor& executor, bool input) {
    const auto& bindings = input ? executor.inputs : executor.outputs;
    const auto& tensors = input ? executor.model->inputs : executor.model->outputs;
    for (std::size_t i = 0; i < bindings.size(); ++i) {
        const std::string place = (input ? "input " : "output ") + std::to_string(i) + ": ";
        if (bindings[i].data == nullptr) return place + "nothing is bound";
        const auto found = state.blocks.find(bindings[i].data);
        if (found == state.blocks.end()) return place + "not the base of a piece of driver memory";
        const auto& block = found->second;
        if (block.executor == nullptr) return place + "memory of a destroyed executor";
        if (block.executor != &executor) return place + "memory of another executor";
        if (block.input != input || block.index != i) return place + "memory of another tensor";
        if (bindings[i].length > block.length) return place + "longer than its memory";
        if (!block.intact()) return place + "somebody wrote past its end";
        // The driver is told the whole block, whatever length was bound.
        const std::size_t bytes = standin::byte_size(tensors[i].type, tensors[i].shape);
        state.stats.largest_waste = std::max<std::uint64_t>(state.stats.largest_waste, block.length - bytes);
    }
    return "";
}

}  // namespace

extern "C" {

OH_NN_Memory* OH_NNExecutor_AllocateInputMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                std::size_t length) {
    return allocate(executor, true, index, length);
}

OH_NN_Memory* OH_NNExecutor_AllocateOutputMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                 std::size_t length) {
    return allocate(executor, false, index, length);
}

void OH_NNExecutor_DestroyInputMemory(OH_NNExecutor* executor, std::uint32_t index, OH_NN_Memory** memory) {
    destroy(executor, true, index, memory);
}

void OH_NNExecutor_DestroyOutputMemory(OH_NNExecutor* executor, std::uint32_t index, OH_NN_Memory** memory) {
    destroy(executor, false, index, memory);
}

OH_NN_ReturnCode OH_NNExecutor_SetInputWithMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                  const OH_NN_Tensor* tensor, const OH_NN_Memory* memory) {
    return bind(executor, true, index, tensor, memory);
}

OH_NN_ReturnCode OH_NNExecutor_SetOutputWithMemory(OH_NNExecutor* executor, std::uint32_t index,
                                                   const OH_NN_Memory* memory) {
    return bind(executor, false, index, nullptr, memory);
}

OH_NN_ReturnCode OH_NNExecutor_Run(OH_NNExecutor* executor) {
    State& state = State::get();
    std::unique_lock lock(state.mutex);
    if (!state.usable(executor, "executor")) return OH_NN_INVALID_PARAMETER;
    const standin::Turn turn(*executor);
    if (!turn.mine()) return state.misuse("Run: two threads on one executor");
    std::string wrong = problem(state, *executor, true);
    if (wrong.empty()) wrong = problem(state, *executor, false);
    if (!wrong.empty()) return state.misuse("Run: " + wrong);
    if (const auto code = state.begin_run(*executor); code != OH_NN_SUCCESS) return code;
    state.hold_run(lock);
    std::vector<std::vector<std::int32_t>> in_shapes;
    std::vector<std::vector<std::int32_t>> out_shapes;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const auto& tensor : executor->model->inputs) in_shapes.push_back(tensor.shape);
    for (const auto& tensor : executor->model->outputs) out_shapes.push_back(tensor.shape);
    for (const auto& binding : executor->inputs) from.push_back(binding.data);
    for (const auto& binding : executor->outputs) to.push_back(binding.data);
    const standin::Switches switches = state.switches;
    lock.unlock();
    standin::compute(*executor, in_shapes, from, to, out_shapes, switches);
    lock.lock();
    return OH_NN_SUCCESS;
}

}  // extern "C"
