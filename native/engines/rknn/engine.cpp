// The engine: cores, priority, the choice of mode and binding, and what the user should know.
#include "engines/rknn/engine.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "engines/rknn/context.hpp"

namespace pipeline {
namespace rknn {
namespace {

constexpr unsigned most_cores = 3;

std::string text_of(const char* text, std::size_t size) { return std::string(text, ::strnlen(text, size)); }

void require_functions(const Api& api, const RknnOptions& options) {
    const auto all = [&](std::string_view purpose, auto... functions) {
        (api.require(functions.second != nullptr, functions.first, purpose), ...);
    };
    const auto function = [](const char* name, auto* pointer) { return std::pair(name, pointer); };
    if (options.mode == RknnMode::zero_copy) {
        all("mode 'zero_copy'", function("rknn_create_mem", api.create_mem),
            function("rknn_destroy_mem", api.destroy_mem), function("rknn_set_io_mem", api.set_io_mem));
        if (options.explicit_sync) all("explicit cache handling", function("rknn_mem_sync", api.mem_sync));
    } else {
        all("mode 'general'", function("rknn_inputs_set", api.inputs_set),
            function("rknn_outputs_get", api.outputs_get),
            function("rknn_outputs_release", api.outputs_release));
    }
}

std::uint32_t init_flags(const RknnOptions& options) {
    std::uint32_t flags = init_flag::priority_high;
    if (options.priority == RknnPriority::medium) flags = init_flag::priority_medium;
    if (options.priority == RknnPriority::low) flags = init_flag::priority_low;
    if (!options.raise_priority) flags |= init_flag::disable_proc_high_priority;
    if (options.explicit_sync) {
        flags |= init_flag::disable_flush_input_mem_cache | init_flag::disable_flush_output_mem_cache;
    }
    return flags;
}

void init(Session& session) {
    std::string path = checked_file(session.options.model);
    Context context = 0;
    std::uint32_t flags = init_flags(session.options);
    int result = session.api.init(&context, path.data(), 0, flags, nullptr);
    constexpr auto recent = init_flag::disable_proc_high_priority;
    if (result == status::param_invalid && (flags & recent) != 0) {  // a runtime that does not know it
        result = session.api.init(&context, path.data(), 0, flags & ~recent, nullptr);
    }
    session.api.check(result, Errc::model, path + ": rknn_init refused the model");
    session.root = Handle(session.api, context);
    SdkVersion version{};
    session.versions = "runtime unknown";
    if (session.api.query(context, query::sdk_version, version) == status::success) {
        session.versions = "runtime " + text_of(version.api_version, sizeof version.api_version) +
                           ", driver " + text_of(version.drv_version, sizeof version.drv_version);
    }
    MemSize size{};
    if (session.api.query(context, query::mem_size, size) == status::success)
        session.internal_bytes = size.total_internal_size;
}

// A chip with one core refuses to choose among them, and the first mask beyond the last core is refused.
unsigned count_cores(const Session& session) {
    if (session.api.set_core_mask == nullptr) return 0;
    unsigned cores = 0;
    while (cores < most_cores) {
        const int result = session.api.set_core_mask(session.root.get(), 1 << cores);
        if (result == status::device_unavailable || result == status::device_unmatch) {
            Api::fail(result, Errc::device, "rknn_set_core_mask");
        }
        if (result != status::success) break;
        ++cores;
    }
    return cores;
}

void choose_cores(Session& session) {
    const unsigned found = count_cores(session);
    session.choose_core = found > 0;
    const unsigned count = std::max(found, 1U);
    session.cores = session.options.cores;
    for (const unsigned core : session.cores) {
        if (core < count) continue;
        throw Error(Errc::device,
                    "core " + std::to_string(core) + " is not there, the NPU has " + std::to_string(count) +
                        (count == 1 ? " core" : " cores") + " (" + session.versions + ")",
                    "options.cores");
    }
    for (unsigned i = 0; session.options.cores.empty() && i < count; ++i) session.cores.push_back(i);
    session.set_core(session.root.get(), session.cores[0]);
}

void describe_model(Session& session) {
    if (session.shapes.empty()) {
        session.model = describe(session.api, session.root.get(), session.options, false);
        return;
    }
    // The root belongs to another thread from here on, so the shapes are tried on a copy.
    const Handle copy = session.duplicate(session.root.get(), session.cores[0]);
    session.set_shapes(copy.get(), session.shapes);
    session.model = describe(session.api, copy.get(), session.options, true);
}

void choose_binding(Session& session) {
    if (!session.zero_copy()) return;
    session.per_slot = session.options.binding == RknnBinding::context_per_slot;
    if (session.per_slot) return;
    const Handle probe = session.duplicate(session.root.get(), session.cores[0]);
    session.set_shapes(probe.get(), session.shapes);
    if (honours_rebinding(session, probe.get())) return;
    if (session.options.binding == RknnBinding::rebind) {
        throw Error(Errc::engine,
                    "this runtime ignores memory that is bound after the first run (" + session.versions +
                        "); use 'context_per_slot'",
                    "options.binding");
    }
    session.per_slot = true;
}

std::string megabytes(std::uint64_t bytes) {
    const auto tenths = (bytes * 10 + 524288) / 1048576;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MB";
}

// float32 NCHW
std::string shown(const Tensor& tensor) {
    const auto& spec = tensor.spec;
    return std::string(dtype_name(spec.dtype)) + (spec.layout.empty() ? "" : " ") + spec.layout;
}

class RknnEngine final : public Engine {
public:
    explicit RknnEngine(const RknnOptions& options) : session_(std::make_unique<Session>(options)) {
        Session& session = *session_;
        require_functions(session.api, options);
        init(session);
        if (options.input_shape) {
            session.shapes = input_shapes(session.api, session.root.get(), *options.input_shape);
        }
        choose_cores(session);
        describe_model(session);
        choose_binding(session);
        firsts_.resize(options.contexts.value_or(session.cores.size()));
        for (std::size_t i = 1; i < firsts_.size(); ++i)
            firsts_[i] = session.duplicate(session.root.get(), session.core_of(i));
        specs_ = specs_of(session.model);
    }

    [[nodiscard]] std::string_view name() const noexcept override { return "rknn"; }
    [[nodiscard]] std::string device() const override { return "Rockchip NPU (" + session_->versions + ")"; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return firsts_.size(); }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return specs_.inputs; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return specs_.outputs; }
    [[nodiscard]] bool rebinds() const noexcept override { return !session_->per_slot; }

    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t index) override {
        Handle first = std::move(firsts_.at(index));
        return session_->zero_copy() ? open_zero_copy(*session_, index, std::move(first))
                                     : open_general(*session_, index, std::move(first));
    }

    [[nodiscard]] std::vector<std::pair<std::string, std::string>> notes() const override {
        const Session& session = *session_;
        const char* binding = session.per_slot ? "context_per_slot" : "rebind";
        if (!session.zero_copy()) binding = "none, the runtime copies inputs and outputs";
        const std::size_t alive = session.alive;
        std::string cores;
        for (const unsigned core : session.cores) cores += (cores.empty() ? "" : ", ") + std::to_string(core);
        std::vector<std::pair<std::string, std::string>> notes = {
            {"binding", binding},
            {"internal memory", std::to_string(alive) + " runtime contexts of " +
                                    megabytes(session.internal_bytes) + ", " +
                                    megabytes(alive * std::uint64_t{session.internal_bytes}) + " in all"},
            {"cores", session.choose_core ? cores : "the chip's only one"}};
        const auto how = [&](const Tensor& tensor, const std::string& change) {
            if (tensor.conversion) notes.emplace_back(tensor.label, change + " in one pass");
            if (tensor.by_runtime) notes.emplace_back(tensor.label, change + " by the runtime, on the CPU");
        };
        for (const auto& tensor : session.model.inputs) how(tensor, shown(tensor) + " to " + tensor.native);
        for (const auto& tensor : session.model.outputs) how(tensor, tensor.native + " to " + shown(tensor));
        return notes;
    }

private:
    const std::unique_ptr<Session> session_;
    std::vector<Handle> firsts_;  // of the contexts until they are opened; the first one has the root
    TensorSpecs specs_;
};

}  // namespace
}  // namespace rknn

std::shared_ptr<Engine> open_rknn(const RknnOptions& options) {
    if (options.contexts == std::size_t{0}) throw Error(Errc::config, "contexts is 0, not above 0");
    return std::make_shared<rknn::RknnEngine>(options);
}

void check_rknn_library(const std::string& library) { static_cast<void>(rknn::Api(library)); }

}  // namespace pipeline
