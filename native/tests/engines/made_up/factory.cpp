// An engine as somebody adds it: this folder is all of its native side. Its output is the first byte of
// its input times the option "gain".
#include <cstring>
#include <memory>
#include <vector>

#include "engines/registry.hpp"

namespace pipeline::made_up {
namespace {

class Context final : public EngineContext {
public:
    explicit Context(float gain) : gain_(gain) {}

    DriverBlock allocate(Direction /*direction*/, std::size_t /*index*/, std::size_t bytes) override {
        blocks_.push_back(std::make_unique<std::byte[]>(bytes));
        return {blocks_.back().get(), bytes, nullptr};
    }
    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        std::erase_if(blocks_, [&](const auto& each) { return each.get() == block.base; });
    }
    void run(const RunRequest& request) override {
        const float value = gain_ * static_cast<float>(*request.inputs[0].base);
        std::memcpy(request.outputs[0].base, &value, sizeof value);
    }

private:
    const float gain_;
    std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

class MadeUp final : public Engine {
public:
    explicit MadeUp(float gain) : gain_(gain) {}

    [[nodiscard]] std::string_view name() const noexcept override { return "made_up"; }
    [[nodiscard]] std::string device() const override { return "nothing"; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return 1; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t /*index*/) override {
        return std::make_unique<Context>(gain_);
    }

private:
    const float gain_;
    const std::vector<TensorSpec> inputs_{{"image", DType::u8, {1, 4, 4, 3}, "NHWC", 0, {}}};
    const std::vector<TensorSpec> outputs_{{"value", DType::f32, {1}, "", 0, {}}};
};

}  // namespace

std::shared_ptr<Engine> open(Options& options) {
    const auto gain = options.take("gain", 1.0F);
    options.finish();
    return std::make_shared<MadeUp>(gain);
}

Devices find_devices(const std::string& library) { return {library, {{"0", "nothing"}}}; }

}  // namespace pipeline::made_up
