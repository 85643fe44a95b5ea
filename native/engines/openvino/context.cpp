// Owns the infer requests and tensors of one context, and runs them on the bound blocks.
#ifdef PIPELINE_WITH_OPENVINO

#include "engines/openvino/context.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "engines/openvino/model.hpp"

namespace pipeline::openvino {
namespace {

using HostMemory = std::unique_ptr<std::byte, void (*)(void*)>;

// Zeroed; at the start of a page when large, of a cache line when small.
HostMemory host_memory(std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    constexpr std::size_t cache_line = 64;
    const std::size_t alignment = bytes >= page ? page : cache_line;
    const std::size_t length = (bytes + alignment - 1) / alignment * alignment;
    HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, length)), std::free);
    if (memory) std::memset(memory.get(), 0, length);
    return memory;
}

// A request keeps what was bound last: the C API has no unbind, and binding something else would
// need a second set of tensors. Nothing is read or written between runs, each run binds all
// tensors anew, and a bound block takes the request with it when it is released, so no request
// ever refers to memory that is gone. The next run then makes another request.
class Context final : public EngineContext {
public:
    explicit Context(const Session& session)
        : session_(session),
          request_(nullptr, session.api.ov_infer_request_free),
          inputs_(session.inputs.size()),
          outputs_(session.outputs.size()) {
        open_request(Errc::engine);
    }

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        const TensorSpec& spec = session_.specs(direction).at(index);
        const std::string what = std::string(direction_name(direction)) + " " + std::to_string(index) + " '" +
                                 spec.name + "': cannot allocate " + std::to_string(bytes) + " bytes";
        // Lent to OpenVINO, which copies it; its own constructor refuses the empty shape of a scalar.
        auto dims = spec.shape;
        const ov_shape_t shape{static_cast<std::int64_t>(dims.size()), dims.data()};
        return session_.remote ? remote_block(spec, shape, bytes, what)
                               : host_block(spec, shape, bytes, what);
    }

    void release(Direction direction, std::size_t index, DriverBlock block) noexcept override {
        auto* tensor = static_cast<ov_tensor_t*>(block.handle);
        Bound& bound = tensors(direction)[index];
        if (request_ && bound.tensor == tensor) drop_request();
        session_.api.ov_tensor_free(tensor);
        if (!session_.remote) std::free(block.base);
    }

    void run(const RunRequest& request) override {
        if (!request_) open_request(Errc::run);
        bind(Direction::input, request.inputs);
        bind(Direction::output, request.outputs);
        if (!checked_) check_in_place(request);
        copy_staged(Direction::input, request.inputs);
        session_.api.check(session_.api.ov_infer_request_infer(request_.get()), Errc::run,
                           "OpenVINO failed to run the model");
        if (!checked_) check_in_place(request);
        copy_staged(Direction::output, request.outputs);
        checked_ = true;
    }

    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const override {
        return (direction == Direction::input ? inputs_ : outputs_).at(index).in_place &&
               !is_converted(direction, index);
    }

    [[nodiscard]] std::string route(Direction direction, std::size_t index) const override {
        if (is_converted(direction, index)) return "converted by the engine, which has another type inside";
        return EngineContext::route(direction, index);
    }

private:
    struct Bound {
        const ov_tensor_t* tensor = nullptr;
        bool in_place = true;
    };

    // The CPU plugin computes in a few types, and begins and ends the graph with conversions of others.
    // Its C interface does not tell; the types of its execution graph, which do, are held by a test.
    [[nodiscard]] bool is_converted(Direction direction, std::size_t index) const {
        if (!session_.runs_on_cpu) return false;
        switch (session_.specs(direction).at(index).dtype) {
            case DType::f32:
            case DType::i32:
            case DType::u8:
            case DType::i8:
                return false;
            case DType::f16:
                return session_.precision != "f16";
            default:
                return true;
        }
    }

    [[nodiscard]] std::vector<Bound>& tensors(Direction direction) noexcept {
        return direction == Direction::input ? inputs_ : outputs_;
    }

    void open_request(Errc code) {
        const Api& api = session_.api;
        request_ = api.own(api.ov_infer_request_free, code, "OpenVINO cannot make an infer request",
                           [&](ov_infer_request_t** out) {
                               return api.ov_compiled_model_create_infer_request(session_.model.get(), out);
                           });
    }

    void drop_request() noexcept {
        request_.reset();
        for (auto* list : {&inputs_, &outputs_}) {
            for (auto& bound : *list) bound.tensor = nullptr;
        }
    }

    DriverBlock host_block(const TensorSpec& spec, ov_shape_t shape, std::size_t bytes,
                           const std::string& what) const {
        const Api& api = session_.api;
        if (bytes < spec.byte_size()) throw Error(Errc::allocation, what + ": the tensor is larger");
        HostMemory memory = host_memory(bytes);
        if (!memory) throw Error(Errc::allocation, what + ": out of memory");
        ov_tensor_t* tensor = nullptr;
        api.check(api.ov_tensor_create_from_host_ptr(element_type(spec.dtype), shape, memory.get(), &tensor),
                  Errc::allocation, what);
        return {.base = memory.release(), .length = bytes, .handle = tensor};
    }

    // The device's own host memory comes in the tensor's exact size only.
    DriverBlock remote_block(const TensorSpec& spec, ov_shape_t shape, std::size_t bytes,
                             const std::string& what) const {
        const Api& api = session_.api;
        if (bytes > spec.byte_size()) {
            throw Error(Errc::allocation,
                        what + ": the device gives exactly " + std::to_string(spec.byte_size()));
        }
        auto tensor = api.own(api.ov_tensor_free, Errc::allocation, what, [&](ov_tensor_t** out) {
            return api.ov_remote_context_create_host_tensor(session_.remote.get(), element_type(spec.dtype),
                                                            shape, out);
        });
        void* data = nullptr;
        api.check(api.ov_tensor_data(tensor.get(), &data), Errc::allocation, what);
        std::memset(data, 0, spec.byte_size());
        return {
            .base = static_cast<std::byte*>(data), .length = spec.byte_size(), .handle = tensor.release()};
    }

    void bind(Direction direction, std::span<const DriverBlock> blocks) {
        const Api& api = session_.api;
        const auto set = direction == Direction::input ? api.ov_infer_request_set_input_tensor_by_index
                                                       : api.ov_infer_request_set_output_tensor_by_index;
        auto& list = tensors(direction);
        if (blocks.size() != list.size()) {
            throw Error(Errc::run, std::string(direction_name(direction)) + "s: the model has " +
                                       std::to_string(list.size()) + ", the run " +
                                       std::to_string(blocks.size()));
        }
        for (std::size_t i = 0; i < list.size(); ++i) {
            const auto* tensor = static_cast<const ov_tensor_t*>(blocks[i].handle);
            const auto status = set(request_.get(), i, tensor);
            if (status != OK) {
                // Whatever it holds now, it must not outlive the blocks.
                const std::string reason = api.reason(status);
                drop_request();
                throw Error(Errc::run, std::string(direction_name(direction)) + " " + std::to_string(i) +
                                           " '" + session_.specs(direction)[i].name +
                                           "' cannot be bound: " + reason);
            }
            list[i].tensor = tensor;
        }
    }

    // Where the request has tensor `index` now.
    [[nodiscard]] std::byte* bound_data(Direction direction, std::size_t index) const {
        const Api& api = session_.api;
        const auto get = direction == Direction::input ? api.ov_infer_request_get_input_tensor_by_index
                                                       : api.ov_infer_request_get_output_tensor_by_index;
        constexpr std::string_view what = "OpenVINO does not tell what is bound";
        const auto tensor = api.own(api.ov_tensor_free, Errc::run, what,
                                    [&](ov_tensor_t** out) { return get(request_.get(), index, out); });
        void* data = nullptr;
        api.check(api.ov_tensor_data(tensor.get(), &data), Errc::run, what);
        return static_cast<std::byte*>(data);
    }

    // Finds tensors that the request has elsewhere than it was told: in memory of its own, or, where
    // the model hands one tensor out twice, in the block of the other. Those are copied.
    void check_in_place(const RunRequest& request) {
        const std::pair<Direction, std::span<const DriverBlock>> sides[] = {
            {Direction::input, request.inputs}, {Direction::output, request.outputs}};
        for (const auto& [direction, blocks] : sides) {
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                const std::byte* data = bound_data(direction, i);
                if (data == blocks[i].base) continue;
                tensors(direction)[i].in_place = false;
                for (const auto& [other, others] : sides) refuse_mix_up(direction, i, data, other, others);
            }
        }
    }

    // OpenVINO finds a tensor by names, type and shape. Of one name it is one tensor; otherwise it
    // took one for the other.
    void refuse_mix_up(Direction direction, std::size_t index, const std::byte* data, Direction other,
                       std::span<const DriverBlock> blocks) const {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const auto& mine = session_.specs(direction)[index].name;
            const auto& theirs = session_.specs(other)[i].name;
            if (data != blocks[i].base || mine == theirs) continue;
            throw Error(Errc::model, "OpenVINO cannot tell " + std::string(direction_name(direction)) + " " +
                                         std::to_string(index) + " '" + mine + "' from " +
                                         std::string(direction_name(other)) + " " + std::to_string(i) + " '" +
                                         theirs + "': give them names in the model");
        }
    }

    void copy_staged(Direction direction, std::span<const DriverBlock> blocks) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            if (tensors(direction)[i].in_place) continue;
            std::byte* theirs = bound_data(direction, i);
            if (theirs == blocks[i].base) continue;
            const std::size_t bytes = session_.specs(direction)[i].byte_size();
            if (direction == Direction::input) {
                std::memcpy(theirs, blocks[i].base, bytes);
            } else {
                std::memcpy(blocks[i].base, theirs, bytes);
            }
        }
    }

    const Session& session_;
    Owned<ov_infer_request_t> request_;
    std::vector<Bound> inputs_;
    std::vector<Bound> outputs_;
    bool checked_ = false;
};

}  // namespace

std::unique_ptr<EngineContext> open_context(const Session& session) {
    return std::make_unique<Context>(session);
}

}  // namespace pipeline::openvino

#endif  // PIPELINE_WITH_OPENVINO
