// Everything that the stand-in remembers: switches, counts, contexts and their memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "model.hpp"
#include "network.hpp"
#include "standin.hpp"

namespace standin {

// The version told by rknn_query; each variant of the library defines its own. As in the vendor's,
// the file has it behind the words "librknnrt version: ".
extern const char* const runtime_version;

// Fails the n-th of something, or all from it on: "3" or "3+".
class Fault {
public:
    Fault() = default;
    explicit Fault(const char* variable);
    // Counts one; whether it is to fail.
    [[nodiscard]] bool next() noexcept;

private:
    std::uint64_t at_ = 0;
    bool onwards_ = false;
    std::atomic<std::uint64_t> count_{0};
};

enum class Rebind { honour, ignore, refuse };

// Read from the environment by each rknn_init; duplicated contexts share it and its counts.
struct Switches {
    Switches();

    std::string chip;
    int cores = 3;
    Rebind rebind = Rebind::honour;
    std::optional<std::uint32_t> run_us;
    std::uint32_t max_model_version = 6;
    bool one_thread = false;
    std::int32_t fail_code = rknn::status::fail;
    Fault fail_run{"STANDIN_RKNN_FAIL_RUN"};
    Fault fail_alloc{"STANDIN_RKNN_FAIL_ALLOC"};
    Fault fail_dup{"STANDIN_RKNN_FAIL_DUP"};
    Fault fail_sync{"STANDIN_RKNN_FAIL_SYNC"};
    Fault hang_run{"STANDIN_RKNN_HANG_RUN"};
    Fault move_output{"STANDIN_RKNN_MOVE_OUTPUT"};
};

// The counts of Stats, which any thread may touch.
struct Counters {
    std::atomic<std::uint64_t> calls{0}, runs{0}, allocations{0}, live_mems{0}, live_contexts{0},
        live_outputs{0}, live_weights{0}, misuse{0}, binds{0}, binds_ignored{0}, syncs{0}, copies{0},
        copied_bytes{0}, conversions{0}, internal_bytes{0}, device_cpu_ns{0}, copy_cpu_ns{0},
        priority_raises{0};
};
[[nodiscard]] Counters& counters() noexcept;

// A rule was broken: tells it on stderr, counts it, and gives `code` back to return.
int misuse(int code, const char* function, const std::string& what);

// The weights, shared by duplicated contexts.
class Loaded {
public:
    explicit Loaded(std::shared_ptr<const Model> model);
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;
    ~Loaded();
    std::shared_ptr<const Model> model;
};

// One piece of driver memory; the struct that callers hold is its first member.
struct Mem {
    rknn::TensorMem given{};
    rknn::TensorMem made{};  // what `given` was at first
    rknn::Context owner = 0;
    bool live = true;
    bool cacheable = true;
    std::size_t mapped = 0;            // bytes to unmap; 0 for the caller's own memory
    std::vector<std::uint8_t> shadow;  // what the device sees, where caches are not flushed for it
    bool synced = false;               // since it was made, to the device
    bool device_wrote = false;         // and not yet synced from the device

    [[nodiscard]] std::uint8_t* data() const noexcept {
        return static_cast<std::uint8_t*>(made.virt_addr) + made.offset;
    }
    [[nodiscard]] bool tampered() const noexcept;
    [[nodiscard]] bool overrun() const noexcept;
};

struct Binding {
    Mem* mem = nullptr;
    Layout layout;
};

enum class Mode { none, zero_copy, general };

struct ContextState {
    ContextState(rknn::Context handle, std::shared_ptr<Loaded> loaded, std::shared_ptr<Switches> switches,
                 std::uint32_t flags);
    ContextState(const ContextState&) = delete;
    ContextState& operator=(const ContextState&) = delete;
    ~ContextState();

    [[nodiscard]] const Model& model() const noexcept { return *loaded->model; }
    [[nodiscard]] bool flushes(bool input) const noexcept;

    rknn::Context id;
    std::shared_ptr<Loaded> loaded;
    std::shared_ptr<Switches> switches;
    std::uint32_t flags;
    std::atomic<const char*> busy{nullptr};  // the function that is inside
    std::atomic<std::thread::id> pinned{};
    std::int32_t cores = 0;  // mask, 0 for any
    Mode mode = Mode::none;
    std::optional<std::size_t> shape;  // none: a dynamic model whose shape is not yet set
    std::vector<Binding> inputs;       // zero copy
    std::vector<Binding> outputs;
    bool ran = false;                                    // since the shape was set
    std::vector<std::vector<std::uint8_t>> input_store;  // general: the library's own memory
    std::vector<std::vector<std::uint8_t>> output_store;
    std::vector<bool> given;                 // general: inputs that were set
    std::vector<bool> bytes_given;           // general: and that as bytes, which the device normalises
    std::map<void*, std::uint32_t> fetched;  // general: outputs that the library allocated
    std::int64_t last_us = -1;
    std::uint64_t frames = 0;
    Network network;
    std::string perf;
};

// Contexts by handle, and memory by the address that callers hold; dead ones are remembered.
class Registry {
public:
    [[nodiscard]] std::shared_ptr<ContextState> find(rknn::Context handle);
    [[nodiscard]] rknn::Context add(std::shared_ptr<Loaded> loaded, std::shared_ptr<Switches> switches,
                                    std::uint32_t flags);
    void remove(rknn::Context handle);
    [[nodiscard]] Mem* find_mem(const rknn::TensorMem* mem);
    Mem* add_mem(std::unique_ptr<Mem> mem);
    [[nodiscard]] std::size_t live_mems(rknn::Context owner);

private:
    std::mutex mutex_;
    std::map<rknn::Context, std::shared_ptr<ContextState>> contexts_;
    std::map<const rknn::TensorMem*, std::unique_ptr<Mem>> mems_;
    rknn::Context next_ = 0x52000001;
};
[[nodiscard]] Registry& registry();

enum class Uses { state, memory };  // calls that use memory are the ones that ONE_THREAD pins

// One call into a context: counted, and refused where another is inside.
class Call {
public:
    Call(const char* function, rknn::Context handle, Uses uses = Uses::state);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

    [[nodiscard]] bool refused() const noexcept { return code_ != 0; }
    [[nodiscard]] int code() const noexcept { return code_; }
    [[nodiscard]] ContextState& context() const noexcept { return *context_; }
    int misuse(int code, const std::string& what) const { return standin::misuse(code, function_, what); }
    // The memory that the caller names, live and of this context, or null after telling why not.
    [[nodiscard]] Mem* memory(const rknn::TensorMem* mem) const;

private:
    const char* function_;
    std::shared_ptr<ContextState> context_;
    int code_ = 0;
};

// Runs that hang until they are released.
class Hangs {
public:
    void arm();
    void release();
    void wait();
    [[nodiscard]] std::uint32_t hanging();

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool released_ = false;
    std::uint32_t hanging_ = 0;
};
[[nodiscard]] Hangs& hangs();

}  // namespace standin
