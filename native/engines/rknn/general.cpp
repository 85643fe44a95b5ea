// The mode in which the runtime copies: blocks in host memory.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "engines/rknn/context.hpp"

namespace pipeline::rknn {
namespace {

constexpr std::size_t cache_line = 64;

// The runtime copies inputs to and outputs from memory of its own. Outputs go to the same blocks for
// ever: nothing is allocated by a run.
class GeneralContext final : public EngineContext {
public:
    GeneralContext(Session& session, std::size_t index, Handle first)
        : session_(session), guard_(session, index), own_(std::move(first)) {
        context_ = own_ ? own_.get() : session_.root.get();
        session_.set_shapes(context_, session_.shapes);
        ++session_.alive;
        inputs_.resize(model_.inputs.size());
        outputs_.resize(model_.outputs.size());
    }
    ~GeneralContext() override { --session_.alive; }

    DriverBlock allocate(Direction /*direction*/, std::size_t /*index*/, std::size_t bytes) override {
        const std::size_t length = (bytes + cache_line - 1) / cache_line * cache_line;
        auto* const base = static_cast<std::byte*>(std::aligned_alloc(cache_line, length));
        if (base == nullptr)
            throw Error(Errc::allocation, "out of memory for " + std::to_string(bytes) + " bytes");
        std::memset(base, 0, length);
        return {.base = base, .length = bytes, .handle = nullptr};
    }

    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        std::free(block.base);
    }

    void run(const RunRequest& request) override {
        guard_.before();
        const Api& api = session_.api;
        set_inputs(request);
        guard_.after(api.run(context_, nullptr));
        get_outputs(request);
    }

    TensorSpecs reshape(std::span<const std::int64_t> shape) override {
        const auto shapes = input_shapes(session_.api, context_, {shape.begin(), shape.end()});
        session_.set_shapes(context_, shapes);
        model_ = describe(session_.api, context_, session_.options, !shapes.empty());
        return specs_of(model_);
    }

    [[nodiscard]] bool zero_copy(Direction /*direction*/, std::size_t /*index*/) const override {
        return false;
    }

private:
    void set_inputs(const RunRequest& request) {
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            const Tensor& tensor = model_.inputs[i];
            inputs_[i] = {.index = static_cast<std::uint32_t>(i),
                          .buf = request.inputs[i].base,
                          .size = static_cast<std::uint32_t>(tensor.spec.byte_size()),
                          .pass_through = 0,
                          .type = tensor.attr.type,
                          .fmt = tensor.attr.fmt};
        }
        const int result =
            session_.api.inputs_set(context_, static_cast<std::uint32_t>(inputs_.size()), inputs_.data());
        if (result != status::success)
            Api::fail(result, Errc::run, describe_all("rknn_inputs_set", Direction::input));
    }

    void get_outputs(const RunRequest& request) {
        const Api& api = session_.api;
        const auto count = static_cast<std::uint32_t>(outputs_.size());
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            const Tensor& tensor = model_.outputs[i];
            outputs_[i] = {.want_float = static_cast<std::uint8_t>(tensor.want_float),
                           .is_prealloc = 1,
                           .index = static_cast<std::uint32_t>(i),
                           .buf = request.outputs[i].base,
                           .size = static_cast<std::uint32_t>(tensor.spec.byte_size())};
        }
        const int result = api.outputs_get(context_, count, outputs_.data(), nullptr);
        if (result != status::success)
            Api::fail(result, Errc::run, describe_all("rknn_outputs_get", Direction::output));
        std::size_t moved = outputs_.size();
        const void* where = nullptr;
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
            if (outputs_[i].buf == request.outputs[i].base || moved < outputs_.size()) continue;
            moved = i;
            where = outputs_[i].buf;
        }
        // Frees nothing of ours, but each get is to be followed by it.
        const int released = api.outputs_release(context_, count, outputs_.data());
        if (moved < outputs_.size()) {
            throw Error(Errc::engine, model_.outputs[moved].label +
                                          ": the runtime moved the buffer that it was given for good" +
                                          (where == nullptr ? ", to nowhere" : "") + " (" +
                                          session_.versions + ")");
        }
        api.check(released, Errc::run, "rknn_outputs_release");
    }

    // All tensors with their sizes: the runtime does not tell which of them it refused.
    [[nodiscard]] std::string describe_all(const std::string& call, Direction direction) const {
        std::string all;
        for (const auto& tensor : model_.tensors(direction)) {
            all += (all.empty() ? "" : ", ") + tensor.label + " (" + std::to_string(tensor.spec.byte_size()) +
                   " bytes given)";
        }
        return call + " refused one of " + all;
    }

    Session& session_;
    Model model_ = session_.model;
    RunGuard guard_;
    const Handle own_;
    Context context_ = 0;
    std::vector<Input> inputs_;
    std::vector<Output> outputs_;
};

}  // namespace

std::unique_ptr<EngineContext> open_general(Session& session, std::size_t index, Handle first) {
    return std::make_unique<GeneralContext>(session, index, std::move(first));
}

}  // namespace pipeline::rknn
