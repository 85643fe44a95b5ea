// What the parts of the stand-in share: what is alive, what went wrong, and the switches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engines/nnrt/abi.hpp"
#include "tests/vendor/nnrt/model.hpp"

extern "C" {

struct StandinNnrtStats {
    std::uint64_t runs;
    std::uint64_t allocations;
    std::uint64_t frees;
    std::uint64_t live_blocks;
    std::uint64_t live_bytes;
    std::uint64_t leaked_blocks;  // of executors that were destroyed before their memory
    std::uint64_t live_executors;
    std::uint64_t live_compilations;
    std::uint64_t live_descriptions;
    std::uint64_t descriptions;   // made since the start
    std::uint64_t binds;          // Set*WithMemory
    std::uint64_t largest_waste;  // bytes that a block bound to a run had more than its tensor
    std::uint64_t misuses;
};

void standin_nnrt_stats(StandinNnrtStats* stats);
const char* standin_nnrt_last_misuse();
// Let a held run go on, and all later ones.
void standin_nnrt_release();
// Counters to zero and the switches read anew; what is alive stays.
void standin_nnrt_reset();

}  // extern "C"

namespace standin {

// Driver memory. Known by its exact base; the bytes between its length and the page's end are guarded.
struct Block {
    std::byte* base = nullptr;
    std::size_t length = 0;
    std::size_t mapped = 0;
    const OH_NNExecutor* executor = nullptr;  // v1: the owner, null once destroyed; v2: none
    bool input = false;
    std::size_t index = 0;

    [[nodiscard]] bool intact() const noexcept;
};

struct Switches {
    bool no_devices = false;
    bool refuse_offline = false;
    bool refuse_cache = false;
    bool refuse_options = false;
    bool refuse_executor = false;
    bool stay_dead = false;
    std::uint64_t refuse_allocation = ~std::uint64_t{0};
    std::set<std::uint64_t> fail_runs;
    std::set<std::uint64_t> unload_runs;
    std::set<std::uint64_t> die_runs;
    std::set<std::uint64_t> lose_runs;
    std::set<std::uint64_t> hold_runs;
    std::string fail_bind;
    std::int64_t silent_output = -1;
    std::int32_t output_shape = 0;
};

struct State {
    std::mutex mutex;
    Switches switches;
    StandinNnrtStats stats{};
    std::string last_misuse;
    std::map<const void*, Block> blocks;
    std::set<const void*> alive;   // handles: executors, compilations, descriptions, tensors, memories
    std::uint64_t generation = 1;  // of service and device; what was made before is dead
    bool dead = false;
    std::condition_variable released;
    bool holding = true;

    static State& get();
    // Each with the lock held.
    void read_switches();
    OH_NN_ReturnCode misuse(const std::string& what, OH_NN_ReturnCode code = OH_NN_INVALID_PARAMETER);
    // Whether a handle is alive; a misuse when not.
    bool usable(const void* object, const char* what);
    Block* allocate(std::size_t length);
    void free(Block& block);
    // How the run that now begins is going to end before it computes anything; SUCCESS: it does.
    OH_NN_ReturnCode begin_run(const OH_NNExecutor& executor);
    void hold_run(std::unique_lock<std::mutex>& lock);
};

}  // namespace standin

// The opaque types of the interface.
struct OH_NNCompilation {
    std::string model_path;  // empty: for a cache
    std::string cache_dir;
    std::uint32_t cache_version = 0;
    std::size_t device = 0;
    bool built = false;
    std::shared_ptr<const standin::Model> model;
};

struct OH_NNExecutor {
    struct Binding {
        std::byte* data = nullptr;
        std::size_t length = 0;
    };
    std::shared_ptr<const standin::Model> model;
    std::size_t device = 0;
    std::uint64_t generation = 0;
    std::atomic<bool> running{false};
    std::vector<Binding> inputs;
    std::vector<Binding> outputs;
    std::vector<std::vector<std::int32_t>> made;  // shapes of the outputs of the last run
};

namespace standin {

// Marks an executor as used by this thread; two at once are a misuse.
class Turn {
public:
    explicit Turn(OH_NNExecutor& executor) : executor_(executor), mine_(!executor.running.exchange(true)) {}
    ~Turn() {
        if (mine_) executor_.running = false;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] bool mine() const noexcept { return mine_; }

private:
    OH_NNExecutor& executor_;
    bool mine_;
};

// Compute with the lock released; fills `made`.
void compute(OH_NNExecutor& executor, const std::vector<std::vector<std::int32_t>>& input_shapes,
             const std::vector<const std::byte*>& inputs, const std::vector<std::byte*>& outputs,
             const std::vector<std::vector<std::int32_t>>& output_shapes, const Switches& switches);

}  // namespace standin
