// The two kinds of context, by the runtime's API, and a run tried again after a rest.
#include "engines/nnrt/context.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace pipeline::nnrt {
namespace {

constexpr std::size_t driver_limit = std::size_t{1} << 30;  // of one piece of memory

// What both ways have in common: trying again after a rest, and losing the device.
class Context : public EngineContext {
public:
    void run(const RunRequest& request) final {
        const bool rested = Clock::now() - last_run_ >= session_.options.idle;
        auto status = attempt(request);
        // The runtime unloads a model at rest, and the run that loads it again may fail. A loss is told.
        if (status != OH_NN_SUCCESS && rested && !is_lost(status)) status = attempt(request);
        last_run_ = Clock::now();
        if (status != OH_NN_SUCCESS) fail(status);
        check_shapes();
    }

protected:
    using Clock = std::chrono::steady_clock;

    Context(const Session& session, OwnedExecutor executor)
        : session_(session), executor_(std::move(executor)) {}

    // Bind and run; `at_` names the tensor that could not be bound.
    virtual OH_NN_ReturnCode start(const RunRequest& request) = 0;
    // After the device or service was lost. Throws Errc::device when that cannot be mended.
    virtual void reopen(OH_NN_ReturnCode lost_by) = 0;
    [[nodiscard]] virtual const char* remedy() const noexcept = 0;

    [[nodiscard]] const Api& api() const noexcept { return session_.api; }
    [[nodiscard]] std::string device() const { return "device '" + session_.device.name + "'"; }

    void check_room(Direction direction, std::size_t index, std::size_t bytes) const {
        const std::size_t needed = session_.tensors.specs(direction).at(index).byte_size();
        if (bytes >= needed && bytes <= driver_limit) return;
        throw Error(Errc::allocation,
                    std::to_string(bytes) + " bytes asked for; NNRT gives this tensor at least " +
                        std::to_string(needed) + " and at most " + std::to_string(driver_limit));
    }
    [[noreturn]] void refuse(std::size_t bytes) const {
        throw Error(Errc::allocation, device() + " refused " + std::to_string(bytes) + " bytes");
    }

    const Session& session_;  // outlives its contexts: their threads hold the engine
    OwnedExecutor executor_;
    std::string at_;

private:
    OH_NN_ReturnCode attempt(const RunRequest& request) {
        if (lost_by_) {
            reopen(*lost_by_);
            lost_by_.reset();
            checked_ = false;
        }
        const auto status = start(request);
        if (is_lost(status)) lost_by_ = status;
        return status;
    }

    [[noreturn]] void fail(OH_NN_ReturnCode status) {
        const std::string at = std::exchange(at_, {});
        if (status == OH_NN_CONNECTION_EXCEPTION) {
            throw Error(Errc::device,
                        device() + ": the NNRT service died, " + code_text(status) + "; " + remedy());
        }
        if (is_lost(status))
            throw Error(Errc::device, device() + " was lost, " + code_text(status) + "; " + remedy());
        throw Error(Errc::run, at + device() + " failed to run the model: " + code_text(status));
    }

    // All outputs after the first run, then those whose size is the run's choice: what was declared
    // for them must be what the model makes, or the rest of the block would be old data.
    void check_shapes() {
        const bool all = !std::exchange(checked_, true);
        if (api().OH_NNExecutor_GetOutputShape == nullptr) return;
        const auto& outputs = session_.tensors.outputs;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (!all && !session_.tensors.open_outputs[i]) continue;
            std::int32_t* shape = nullptr;  // the executor's own
            std::uint32_t count = 0;
            const auto status = api().OH_NNExecutor_GetOutputShape(
                executor_.get(), static_cast<std::uint32_t>(i), &shape, &count);
            if (status != OH_NN_SUCCESS || std::ranges::equal(std::span(shape, count), outputs[i].shape))
                continue;
            std::string made;
            for (const auto size : std::span(shape, count))
                made += (made.empty() ? "" : ", ") + std::to_string(size);
            checked_ = false;
            throw Error(Errc::run, tensor_place(outputs[i], Direction::output, i) + "the model made [" +
                                       made + "], which is not what was declared");
        }
    }

    Clock::time_point last_run_ = Clock::now();
    std::optional<OH_NN_ReturnCode> lost_by_;
    bool checked_ = false;
};

// API 11: a block is an NN_Tensor. Tensors belong to the device, so they outlive a lost executor.
class TensorContext final : public Context {
public:
    TensorContext(const Session& session, OwnedExecutor executor)
        : Context(session, std::move(executor)),
          inputs_(session.tensors.inputs.size()),
          outputs_(session.tensors.outputs.size()) {
        for (const auto direction : {Direction::input, Direction::output}) describe(direction);
    }

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        check_room(direction, index, bytes);
        NN_TensorDesc* const description = descriptions(direction)[index].get();
        NN_Tensor* tensor = api().OH_NNTensor_CreateWithSize(session_.device.id, description, bytes);
        if (tensor == nullptr) refuse(bytes);
        std::size_t length = 0;
        void* const base = api().OH_NNTensor_GetDataBuffer(tensor);
        if (base == nullptr || api().OH_NNTensor_GetSize(tensor, &length) != OH_NN_SUCCESS ||
            length < bytes) {
            static_cast<void>(api().OH_NNTensor_Destroy(&tensor));
            refuse(bytes);
        }
        return {static_cast<std::byte*>(base), length, tensor};
    }

    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        auto* tensor = static_cast<NN_Tensor*>(block.handle);
        static_cast<void>(api().OH_NNTensor_Destroy(&tensor));
    }

protected:
    OH_NN_ReturnCode start(const RunRequest& request) override {
        // Nothing stays bound: the executor sees tensors for the length of this call only.
        take(request.inputs, inputs_);
        take(request.outputs, outputs_);
        return api().OH_NNExecutor_RunSync(executor_.get(), inputs_.data(), inputs_.size(), outputs_.data(),
                                           outputs_.size());
    }

    void reopen(OH_NN_ReturnCode /*lost_by*/) override {
        executor_.reset();
        executor_ = session_.reopen_executor();
    }
    [[nodiscard]] const char* remedy() const noexcept override { return "the next run opens it again"; }

private:
    [[nodiscard]] std::vector<OwnedDescription>& descriptions(Direction direction) noexcept {
        return direction == Direction::input ? input_descriptions_ : output_descriptions_;
    }

    void describe(Direction direction) {
        const bool input = direction == Direction::input;
        const auto create =
            input ? api().OH_NNExecutor_CreateInputTensorDesc : api().OH_NNExecutor_CreateOutputTensorDesc;
        const auto& specs = session_.tensors.specs(direction);
        for (std::size_t i = 0; i < specs.size(); ++i) {
            OwnedDescription description(create(executor_.get(), i), {api().OH_NNTensorDesc_Destroy});
            const std::string what = tensor_place(specs[i], direction, i) + "NNRT does not describe it";
            if (!description) Api::check(OH_NN_NULL_PTR, Errc::model, what);
            const std::vector<std::int32_t> shape(specs[i].shape.begin(), specs[i].shape.end());
            Api::check(api().OH_NNTensorDesc_SetShape(description.get(), shape.data(), shape.size()),
                       Errc::model, what);
            descriptions(direction).push_back(std::move(description));
        }
    }

    static void take(std::span<const DriverBlock> blocks, std::vector<NN_Tensor*>& tensors) {
        std::ranges::transform(blocks, tensors.begin(), [](const DriverBlock& block) {
            return static_cast<NN_Tensor*>(block.handle);
        });
    }

    std::vector<OwnedDescription> input_descriptions_;
    std::vector<OwnedDescription> output_descriptions_;
    std::vector<NN_Tensor*> inputs_;  // prebuilt, so that a run allocates nothing
    std::vector<NN_Tensor*> outputs_;
};

// API 9: a block is memory of the executor, which is lost with it. The runtime has no call to undo
// a binding, so each run binds every tensor anew and none is ever run with an old one.
class MemoryContext final : public Context {
public:
    MemoryContext(const Session& session, OwnedExecutor executor) : Context(session, std::move(executor)) {
        for (const auto& spec : session.tensors.inputs) {
            dimensions_.emplace_back(spec.shape.begin(), spec.shape.end());
            const auto count = static_cast<std::uint32_t>(spec.shape.size());
            inputs_.push_back({type_of(spec.dtype), count, dimensions_.back().data(), nullptr, 0});
            input_bytes_.push_back(spec.byte_size());
        }
        for (const auto& spec : session.tensors.outputs) output_bytes_.push_back(spec.byte_size());
    }

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        check_room(direction, index, bytes);
        const auto call = direction == Direction::input ? api().OH_NNExecutor_AllocateInputMemory
                                                        : api().OH_NNExecutor_AllocateOutputMemory;
        OH_NN_Memory* const memory = call(executor_.get(), static_cast<std::uint32_t>(index), bytes);
        if (memory == nullptr) refuse(bytes);
        const DriverBlock block{static_cast<std::byte*>(memory->data), memory->length, memory};
        if (block.base == nullptr || block.length < bytes) {
            release(direction, index, block);
            refuse(bytes);
        }
        return block;
    }

    void release(Direction direction, std::size_t index, DriverBlock block) noexcept override {
        const auto call = direction == Direction::input ? api().OH_NNExecutor_DestroyInputMemory
                                                        : api().OH_NNExecutor_DestroyOutputMemory;
        auto* memory = static_cast<OH_NN_Memory*>(block.handle);
        call(executor_.get(), static_cast<std::uint32_t>(index), &memory);
    }

protected:
    OH_NN_ReturnCode start(const RunRequest& request) override {
        OH_NNExecutor* const executor = executor_.get();
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            // The tensor's own bytes: a block that was reused may be longer.
            const OH_NN_Memory memory{request.inputs[i].base, input_bytes_[i]};
            const auto status = api().OH_NNExecutor_SetInputWithMemory(
                executor, static_cast<std::uint32_t>(i), &inputs_[i], &memory);
            if (status != OH_NN_SUCCESS) return not_bound(status, Direction::input, i);
        }
        for (std::size_t i = 0; i < output_bytes_.size(); ++i) {
            const OH_NN_Memory memory{request.outputs[i].base, output_bytes_[i]};
            const auto status =
                api().OH_NNExecutor_SetOutputWithMemory(executor, static_cast<std::uint32_t>(i), &memory);
            if (status != OH_NN_SUCCESS) return not_bound(status, Direction::output, i);
        }
        return api().OH_NNExecutor_Run(executor);
    }

    void reopen(OH_NN_ReturnCode lost_by) override {
        throw Error(Errc::device, device() + " was lost, " + code_text(lost_by) + "; " + remedy());
    }
    [[nodiscard]] const char* remedy() const noexcept override {
        return "its memory went with it, so the executor has to be closed and reopened";
    }

private:
    static std::int32_t type_of(DType dtype) noexcept {
        switch (dtype) {
            case DType::boolean:
                return OH_NN_BOOL;
            case DType::u8:
                return OH_NN_UINT8;
            case DType::i8:
                return OH_NN_INT8;
            case DType::u16:
                return OH_NN_UINT16;
            case DType::i16:
                return OH_NN_INT16;
            case DType::u32:
                return OH_NN_UINT32;
            case DType::i32:
                return OH_NN_INT32;
            case DType::u64:
                return OH_NN_UINT64;
            case DType::i64:
                return OH_NN_INT64;
            case DType::f16:
                return OH_NN_FLOAT16;
            case DType::f32:
                return OH_NN_FLOAT32;
            case DType::f64:
                return OH_NN_FLOAT64;
        }
        return OH_NN_UNKNOWN;
    }

    OH_NN_ReturnCode not_bound(OH_NN_ReturnCode status, Direction direction, std::size_t index) {
        at_ = tensor_place(session_.tensors.specs(direction)[index], direction, index) + "not bound: ";
        return status;
    }

    std::vector<std::vector<std::int32_t>> dimensions_;
    std::vector<OH_NN_Tensor> inputs_;  // prebuilt, so that a run allocates nothing
    std::vector<std::size_t> input_bytes_;
    std::vector<std::size_t> output_bytes_;
};

}  // namespace

std::unique_ptr<EngineContext> open_context(Session& session) {
    auto executor = session.take_executor();
    if (session.api.v2()) return std::make_unique<TensorContext>(session, std::move(executor));
    return std::make_unique<MemoryContext>(session, std::move(executor));
}

}  // namespace pipeline::nnrt
