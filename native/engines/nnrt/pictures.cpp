#include "engines/nnrt/pictures.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pipeline::nnrt {
namespace {

class PictureContext final : public EngineContext {
public:
    PictureContext(std::unique_ptr<EngineContext> inner, const Pictures& pictures,
                   const std::vector<TensorSpec>& model_inputs)
        : inner_(std::move(inner)),
          pictures_(pictures),
          model_inputs_(model_inputs),
          inputs_(model_inputs.size()) {}

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        if (!converts(direction, index)) return inner_->allocate(direction, index, bytes);
        // At least the picture's bytes, which is what will be read.
        const std::size_t length = std::max(bytes, pictures_[index]->slot().byte_size());
        auto staged = std::make_unique<Staged>();
        staged->picture = std::make_unique<std::byte[]>(length);
        staged->model = inner_->allocate(direction, index, model_inputs_[index].byte_size());
        std::byte* const base = staged->picture.get();
        return {base, length, staged.release()};
    }

    void release(Direction direction, std::size_t index, DriverBlock block) noexcept override {
        if (!converts(direction, index)) return inner_->release(direction, index, block);
        const std::unique_ptr<Staged> staged(static_cast<Staged*>(block.handle));
        inner_->release(direction, index, staged->model);
    }

    void run(const RunRequest& request) override {
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            inputs_[i] = request.inputs[i];
            if (!converts(Direction::input, i)) continue;
            inputs_[i] = static_cast<Staged*>(request.inputs[i].handle)->model;
            pictures_[i]->convert(request.inputs[i].base, inputs_[i].base);
        }
        inner_->run({inputs_, request.outputs, request.probe});
    }

    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const override {
        return !converts(direction, index) && inner_->zero_copy(direction, index);
    }

    [[nodiscard]] std::string route(Direction direction, std::size_t index) const override {
        if (!converts(direction, index)) return inner_->route(direction, index);
        return "converted from uint8 into the driver's memory";
    }

private:
    struct Staged {
        std::unique_ptr<std::byte[]> picture;
        DriverBlock model;
    };

    [[nodiscard]] bool converts(Direction direction, std::size_t index) const noexcept {
        return direction == Direction::input && pictures_[index] && pictures_[index]->converts();
    }

    const std::unique_ptr<EngineContext> inner_;
    const Pictures& pictures_;
    const std::vector<TensorSpec>& model_inputs_;
    std::vector<DriverBlock> inputs_;  // prebuilt, so that a run allocates nothing
};

}  // namespace

Pictures make_pictures(const std::vector<TensorSpec>& inputs, const std::optional<PictureOptions>& options) {
    Pictures result(inputs.size());
    for (std::size_t i = 0; options && i < inputs.size(); ++i) {
        if (Picture::fits(inputs[i])) result[i].emplace(inputs[i], *options);
    }
    return result;
}

std::unique_ptr<EngineContext> with_pictures(std::unique_ptr<EngineContext> inner, const Pictures& pictures,
                                             const std::vector<TensorSpec>& model_inputs) {
    const bool any =
        std::ranges::any_of(pictures, [](const auto& picture) { return picture && picture->converts(); });
    if (!any) return inner;
    return std::make_unique<PictureContext>(std::move(inner), pictures, model_inputs);
}

}  // namespace pipeline::nnrt
