// The mode in which the NPU works on the slots' own memory, bound for each slot or each run.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "engines/rknn/context.hpp"

namespace pipeline::rknn {
namespace {

constexpr std::size_t cache_line = 64;
using HostMemory = std::unique_ptr<std::byte, void (*)(void*)>;

HostMemory host_memory(std::size_t bytes) {
    const std::size_t length = (bytes + cache_line - 1) / cache_line * cache_line;
    HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(cache_line, length)), std::free);
    if (!memory) throw Error(Errc::allocation, "out of memory for " + std::to_string(bytes) + " bytes");
    std::memset(memory.get(), 0, length);
    return memory;
}

// One runtime context and what is bound to it.
struct Lane;

// DriverBlock::handle
struct Block {
    Direction direction;
    std::size_t index;
    Lane* lane;
    std::unique_ptr<Mapping> mapping;  // of imported memory; outlives it
    std::unique_ptr<NpuMemory> memory;
    HostMemory converted{nullptr, std::free};  // what the user sees instead
    std::size_t length = 0;                    // of what he sees
};

struct Lane {
    Handle own;
    Context context = 0;
    std::optional<SlotKey> slot;  // context_per_slot: that it is made for
    std::vector<Block*> inputs;   // of the slot; else: bound last
    std::vector<Block*> outputs;
    std::size_t blocks = 0;
    bool ran = false;

    [[nodiscard]] std::vector<Block*>& tensors(Direction direction) noexcept {
        return direction == Direction::input ? inputs : outputs;
    }
};

// With `rebind` all blocks belong to one lane. With `context_per_slot` each slot has a lane of its own,
// whose blocks are bound before its first run and not again until its shape changes.
class ZeroCopyContext final : public EngineContext {
public:
    ZeroCopyContext(Session& session, std::size_t index, Handle first)
        : session_(session), core_(session.core_of(index)), guard_(session, index) {
        ++session_.alive;
        add_lane(std::move(first));
    }
    ~ZeroCopyContext() override { session_.alive -= lanes_.size(); }

    // Of the first lane's context, which bears any number of blocks that are never bound.
    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        return allocate_in(*lanes_[0], direction, index, bytes, false);
    }

    DriverBlock allocate_slot(SlotKey slot, Direction direction, std::size_t index,
                              std::size_t bytes) override {
        if (!session_.per_slot) return allocate(direction, index, bytes);
        return allocate_in(lane_for(slot), direction, index, bytes, true);
    }

    DriverBlock import(Direction direction, std::size_t index, std::size_t bytes, DmaBuf buffer) override {
        const Tensor& tensor = model_.tensors(direction).at(index);
        const Api& api = session_.api;
        if (session_.per_slot) {
            throw Error(Errc::config,
                        "binding 'context_per_slot' runs on a slot's own memory only; a dma-buf "
                        "needs options.binding 'rebind'");
        }
        if (tensor.conversion) throw Error(Errc::config, "a dma-buf cannot take what has to be converted");
        api.require(api.create_mem_from_fd != nullptr, "rknn_create_mem_from_fd", "dma-bufs");
        Lane& lane = *lanes_[0];
        std::unique_ptr<Block> block(new Block{direction, index, &lane, nullptr, nullptr});
        bytes = std::max(bytes, tensor.native_bytes);
        block->mapping = std::make_unique<Mapping>(buffer, bytes);
        TensorMem* const mem = api.create_mem_from_fd(
            lane.context, block->mapping->fd(), block->mapping->base(), static_cast<std::uint32_t>(bytes),
            static_cast<std::int32_t>(buffer.offset));
        if (mem == nullptr) {
            throw Error(Errc::allocation, "rknn_create_mem_from_fd refused " + std::to_string(bytes) +
                                              " bytes of a dma-buf; is it one that the NPU can reach?");
        }
        block->memory = std::make_unique<NpuMemory>(api, lane.context, mem, buffer.offset);
        ++lane.blocks;
        blocks_.push_back(block.get());
        block->length = bytes;
        return {.base = block->memory->data(), .length = bytes, .handle = block.release()};
    }

    void release(Direction direction, std::size_t index, DriverBlock driver) noexcept override {
        std::unique_ptr<Block> block(static_cast<Block*>(driver.handle));
        Lane& lane = *block->lane;
        std::erase(blocks_, block.get());
        Block*& place = lane.tensors(direction)[index];
        if (place == block.get()) place = nullptr;
        block.reset();
        --lane.blocks;
        drop_if_idle(lane);
    }

    void run(const RunRequest& request) override {
        guard_.before();
        Lane& lane = lane_of(request);
        bind(lane, Direction::input, request.inputs);
        bind(lane, Direction::output, request.outputs);
        if (request.probe) return probe(lane, request);
        execute(lane, request);
    }

    // What was bound is forgotten by the runtime, and bound again before the next run.
    TensorSpecs reshape(std::span<const std::int64_t> shape) override {
        const Api& api = session_.api;
        auto shapes = input_shapes(api, lanes_[0]->context, {shape.begin(), shape.end()});
        for (const auto& lane : lanes_) {
            session_.set_shapes(lane->context, shapes);
            lane->ran = false;
            if (session_.per_slot) continue;
            std::ranges::fill(lane->inputs, nullptr);
            std::ranges::fill(lane->outputs, nullptr);
        }
        Model model = describe(api, lanes_[0]->context, session_.options, !shapes.empty());
        for (Block* const block : blocks_) {
            // The ring replaces those that are too small as the user sees them.
            const Tensor& tensor = model.tensors(block->direction).at(block->index);
            if (block->length < tensor.spec.driver_size()) continue;
            if (block->memory->mem->size >= tensor.native_bytes) continue;
            block->memory = npu_memory(api, block->lane->context, tensor.native_bytes);
        }
        shapes_ = std::move(shapes);
        model_ = std::move(model);
        return specs_of(model_);
    }

    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const override {
        const Tensor& tensor = model_.tensors(direction).at(index);
        return !tensor.conversion && !tensor.by_runtime;
    }

private:
    [[nodiscard]] static Block& block_of(const DriverBlock& driver) {
        return *static_cast<Block*>(driver.handle);
    }

    // `bound`: the lane is made for it.
    DriverBlock allocate_in(Lane& lane, Direction direction, std::size_t index, std::size_t bytes,
                            bool bound) {
        const Tensor& tensor = model_.tensors(direction).at(index);
        std::unique_ptr<Block> block(new Block{direction, index, &lane, nullptr, nullptr});
        try {
            const std::size_t native =
                tensor.conversion ? tensor.native_bytes : std::max(bytes, tensor.native_bytes);
            block->memory = npu_memory(session_.api, lane.context, native);
            if (tensor.conversion) block->converted = host_memory(bytes);
        } catch (...) {
            block.reset();
            drop_if_idle(lane);
            throw;
        }
        ++lane.blocks;
        if (bound) lane.tensors(direction)[index] = block.get();
        blocks_.push_back(block.get());
        block->length = block->converted ? bytes : block->memory->mem->size;
        const std::size_t length = block->length;
        std::byte* const base = block->converted ? block->converted.get() : block->memory->data();
        return {.base = base, .length = length, .handle = block.release()};
    }

    Lane& add_lane(Handle handle) {
        auto lane = std::make_unique<Lane>();
        lane->context = handle ? handle.get() : session_.root.get();
        session_.set_shapes(lane->context, shapes_);
        lane->own = std::move(handle);
        lane->inputs.resize(model_.inputs.size());
        lane->outputs.resize(model_.outputs.size());
        lanes_.push_back(std::move(lane));
        return *lanes_.back();
    }

    Lane& lane_for(SlotKey slot) {
        for (const auto& lane : lanes_) {
            if (lane->slot == slot) return *lane;
        }
        Lane* lane = lanes_[0].get();
        if (lane->slot || lane->ran) {
            lane = &add_lane(session_.duplicate(lane->context, core_));
            ++session_.alive;
        }
        lane->slot = slot;
        return *lane;
    }

    // The first stays: the others are made from it.
    void drop_if_idle(Lane& lane) noexcept {
        const auto gone = [](const Block* block) { return block == nullptr; };
        if (std::ranges::all_of(lane.inputs, gone) && std::ranges::all_of(lane.outputs, gone)) {
            lane.slot.reset();
        }
        if (lane.blocks > 0 || &lane == lanes_[0].get()) return;
        std::erase_if(lanes_, [&](const auto& other) { return other.get() == &lane; });
        --session_.alive;
    }

    Lane& lane_of(const RunRequest& request) const {
        Lane& lane = *block_of(request.inputs[0]).lane;
        const auto refuse = [&](Direction direction, std::size_t i) {
            throw Error(Errc::binding, model_.tensors(direction)[i].label +
                                           ": this memory is another slot's, and binding "
                                           "'context_per_slot' binds once; use binding 'rebind'");
        };
        const std::pair<Direction, std::span<const DriverBlock>> sides[] = {
            {Direction::input, request.inputs}, {Direction::output, request.outputs}};
        for (const auto& [direction, blocks] : sides) {
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                const Block& block = block_of(blocks[i]);
                const bool bound_once = session_.per_slot && lane.tensors(direction)[i] != &block;
                if (block.lane != &lane || bound_once) refuse(direction, i);
            }
        }
        return lane;
    }

    void bind(Lane& lane, Direction direction, std::span<const DriverBlock> blocks) {
        auto& bound = lane.tensors(direction);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            Block& block = block_of(blocks[i]);
            if (session_.per_slot ? lane.ran : bound[i] == &block) continue;
            const Tensor& tensor = model_.tensors(direction)[i];
            TensorAttr attr = tensor.attr;
            const int result = session_.api.set_io_mem(lane.context, block.memory->mem, &attr);
            if (result != status::success) {
                if (!session_.per_slot) bound[i] = nullptr;
                Api::fail(result, Errc::run,
                          tensor.label + ": rknn_set_io_mem refused it; " +
                              std::to_string(tensor.native_bytes) + " bytes needed, " +
                              std::to_string(block.memory->mem->size) + " given");
            }
            bound[i] = &block;
        }
    }

    void sync(const Lane& lane, Direction direction, std::span<const DriverBlock> blocks, std::int32_t mode) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const int result = session_.api.mem_sync(lane.context, block_of(blocks[i]).memory->mem, mode);
            if (result == status::success) continue;
            Api::fail(result, Errc::run, model_.tensors(direction)[i].label + ": rknn_mem_sync");
        }
    }

    void execute(Lane& lane, const RunRequest& request) {
        if (session_.options.explicit_sync) sync(lane, Direction::input, request.inputs, mem_sync::to_device);
        lane.ran = true;
        guard_.after(session_.api.run(lane.context, nullptr));
        if (session_.options.explicit_sync)
            sync(lane, Direction::output, request.outputs, mem_sync::from_device);
        const auto& outputs = model_.outputs;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (!outputs[i].conversion) continue;
            const Block& block = block_of(request.outputs[i]);
            convert(*outputs[i].conversion, block.memory->data(), block.converted.get());
        }
    }

    // The ring looks at what the user sees; whether the NPU wrote the memory behind a conversion has
    // to be seen here.
    void probe(Lane& lane, const RunRequest& request) {
        const auto& outputs = model_.outputs;
        std::vector<std::size_t> silent;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
            if (outputs[i].conversion) silent.push_back(i);
        }
        for (const auto canary : {std::byte{0xA5}, std::byte{0x5A}}) {
            for (const auto i : silent)
                std::memset(block_of(request.outputs[i]).memory->data(), static_cast<int>(canary),
                            outputs[i].native_bytes);
            // Also for the ring's own canaries: a dirty cache line must not overwrite a result.
            if (session_.api.mem_sync != nullptr)
                sync(lane, Direction::output, request.outputs, mem_sync::to_device);
            execute(lane, request);
            std::erase_if(silent, [&](std::size_t i) {
                const std::byte* const data = block_of(request.outputs[i]).memory->data();
                return std::any_of(data, data + outputs[i].native_bytes,
                                   [&](std::byte value) { return value != canary; });
            });
            if (silent.empty()) return;
        }
        throw Error(Errc::engine,
                    outputs[silent[0]].label + ": the NPU did not write the memory bound to it");
    }

    Session& session_;
    Model model_ = session_.model;
    std::vector<TensorAttr> shapes_ = session_.shapes;
    const unsigned core_;
    RunGuard guard_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::vector<Block*> blocks_;
};

}  // namespace

std::unique_ptr<EngineContext> open_zero_copy(Session& session, std::size_t index, Handle first) {
    return std::make_unique<ZeroCopyContext>(session, index, std::move(first));
}

}  // namespace pipeline::rknn
