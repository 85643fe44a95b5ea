// An initialised model and its executor contexts: NPU memory, binding, runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/rknn/api.hpp"
#include "engines/rknn/model.hpp"

namespace pipeline::rknn {

// What the contexts share. `root` is the first one's, and destroyed after all that came from it.
struct Session {
    explicit Session(const RknnOptions& o) : options(o), api(o.library) {}

    // A context with the weights of `from`, on `core`.
    [[nodiscard]] Handle duplicate(Context from, unsigned core) const;
    void set_core(Context context, unsigned core) const;
    // On the thread that will use the context's memory.
    void set_shapes(Context context, const std::vector<TensorAttr>& attrs) const;
    [[nodiscard]] unsigned core_of(std::size_t context) const { return cores[context % cores.size()]; }
    [[nodiscard]] bool zero_copy() const noexcept { return options.mode == RknnMode::zero_copy; }

    const RknnOptions options;
    const Api api;
    Handle root;
    std::string versions;  // runtime 2.3.2, driver 0.9.8
    Model model;
    std::vector<TensorAttr> shapes;     // of the inputs, where the model has several
    std::vector<unsigned> cores{0};     // to spread the contexts over
    bool choose_core = false;           // the chip has several
    bool per_slot = false;              // context_per_slot
    std::uint32_t internal_bytes = 0;   // of each runtime context
    std::atomic<std::size_t> alive{0};  // runtime contexts
};

// Memory of one tensor; the NPU's own, with a converted copy where that cannot be shown.
struct NpuMemory {
    NpuMemory(const Api& a, Context c, TensorMem* m, std::size_t offset = 0) noexcept
        : api(&a), context(c), mem(m), address(static_cast<std::byte*>(m->virt_addr) + offset) {}
    NpuMemory(const NpuMemory&) = delete;
    NpuMemory& operator=(const NpuMemory&) = delete;
    ~NpuMemory() { static_cast<void>(api->destroy_mem(context, mem)); }

    [[nodiscard]] std::byte* data() const noexcept { return address; }

    const Api* api;
    Context context;
    TensorMem* mem;
    std::byte* address;
};

// A dma-buf, mapped; the descriptor is a duplicate, so that the caller may close his.
class Mapping {
public:
    // Throws Errc::allocation when it has not `bytes` from its offset on.
    Mapping(DmaBuf buffer, std::size_t bytes);
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] void* base() const noexcept { return base_; }  // without the offset

private:
    int fd_;
    std::size_t length_;
    void* base_;
};

// Zeroed NPU memory. Throws Errc::allocation.
[[nodiscard]] std::unique_ptr<NpuMemory> npu_memory(const Api& api, Context context, std::size_t bytes);

// Whether the runtime uses memory that is bound after the first run; tried out on `context`, which is
// not to be used for anything else afterwards.
[[nodiscard]] bool honours_rebinding(const Session& session, Context context);

// `session` must outlive it. `first`: its runtime context, empty for that which has the root.
[[nodiscard]] std::unique_ptr<EngineContext> open_zero_copy(Session& session, std::size_t index,
                                                            Handle first);
[[nodiscard]] std::unique_ptr<EngineContext> open_general(Session& session, std::size_t index, Handle first);

[[nodiscard]] TensorSpecs specs_of(const Model& model);

// Throws what a failed run means, and refuses to go on after several in a row: an NPU that is stuck
// takes the machine with it when it is asked again and again.
class RunGuard {
public:
    RunGuard(const Session& session, std::size_t index) : session_(session), index_(index) {}
    void before() const;
    void after(int result);

private:
    static constexpr int patience = 3;
    const Session& session_;
    const std::size_t index_;
    int failures_ = 0;
};

}  // namespace pipeline::rknn
