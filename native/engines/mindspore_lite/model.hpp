// One built model: its tensors, what it says of them, and the allocators that it gave out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator_registry.hpp"
#include "engines/mindspore_lite/api.hpp"
#include "engines/mindspore_lite/engine.hpp"

namespace pipeline::mindspore_lite {

// A model of the library, shared with every tensor that has an allocator of it.
class OwnedModel {
public:
    explicit OwnedModel(std::shared_ptr<const Api> api)
        : api_(std::move(api)), handle_(api_->ModelCreate()) {}
    OwnedModel(const OwnedModel&) = delete;
    OwnedModel& operator=(const OwnedModel&) = delete;
    ~OwnedModel() {
        if (handle_ != nullptr) api_->destroy_model(handle_);
    }

    [[nodiscard]] Handle get() const noexcept { return handle_; }

private:
    const std::shared_ptr<const Api> api_;
    const Handle handle_;
};

// A tensor of ours; keeps the model whose allocator owns its memory.
struct Tensor {
    AllocatorRegistry::Owner owner;  // outlives the handle
    Owned handle;
    std::byte* data = nullptr;
};

// Belongs to one executor context and is called by its thread only.
class Model {
public:
    // Throws Errc::model, device or config.
    Model(std::shared_ptr<const Api> api, const MindSporeLiteOptions& options);
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    [[nodiscard]] const Api& api() const noexcept { return *api_; }
    // A model is run by one thread only; one that has run cannot be handed to another.
    [[nodiscard]] bool has_run() const noexcept { return has_run_; }
    [[nodiscard]] Handle handle() const noexcept { return model_->get(); }
    // The model's own tensors; never destroyed by us.
    [[nodiscard]] const std::vector<Handle>& tensors(Direction direction) const noexcept {
        return direction == Direction::input ? inputs_ : outputs_;
    }
    // As the model declares them.
    [[nodiscard]] const std::vector<TensorSpec>& specs(Direction direction) const noexcept {
        return direction == Direction::input ? input_specs_ : output_specs_;
    }
    [[nodiscard]] std::string label(Direction direction, std::size_t index) const;

    // Whether a tensor's memory is of the allocator that the model's own tensor `index` has had since
    // the model was loaded.
    [[nodiscard]] bool same_allocator(Handle tensor, Direction direction, std::size_t index) const;
    // The model's own output was pointed to other memory, by which it lost its allocator.
    void forget_allocator(std::size_t output) noexcept { output_allocators_[output] = nullptr; }
    // A tensor like the model's own, with memory of its allocator where it has one, zeroed. Throws
    // Errc::allocation, also for an allocator that is not the one of when the model was loaded; the
    // caller says which tensor.
    [[nodiscard]] Tensor make_tensor(Direction direction, std::size_t index);
    // The same for our own use: the error says it.
    [[nodiscard]] Tensor make_own_tensor(Direction direction, std::size_t index);

private:
    void build(const MindSporeLiteOptions& options);
    void resize(const MindSporeLiteOptions& options);
    void read_tensors();
    [[nodiscard]] std::vector<Handle> register_allocators(const std::vector<Handle>& tensors);
    [[nodiscard]] Handle known_allocator(Direction direction, std::size_t index) const {
        return (direction == Direction::input ? input_allocators_ : output_allocators_)[index];
    }
    [[nodiscard]] AllocatorRegistry::Owner give_allocator(Handle tensor, Handle like, Handle known) const;
    void settle();
    [[nodiscard]] std::byte* provide(Handle tensor, std::size_t bytes) const;
    [[nodiscard]] TensorSpec read_spec(Direction direction, std::size_t index) const;

    const std::shared_ptr<const Api> api_;
    const std::string path_;
    std::shared_ptr<const OwnedModel> model_;
    std::vector<Handle> inputs_;
    std::vector<Handle> outputs_;
    std::vector<TensorSpec> input_specs_;
    std::vector<TensorSpec> output_specs_;
    std::vector<Handle> input_allocators_;  // of when the model was loaded; null: it has none
    std::vector<Handle> output_allocators_;
    AllocatorRegistry allocators_;
    bool has_run_ = false;
};

}  // namespace pipeline::mindspore_lite
