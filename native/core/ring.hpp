// A ring of slots. A slot is one driver block for each input and one for each output of one
// executor context, allocated when the ring is made and never after.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/allocator.hpp"
#include "core/error.hpp"
#include "core/executor.hpp"
#include "core/input_step.hpp"
#include "core/notifier.hpp"

namespace pipeline {

// free -> filling -> submitted -> done -> leased -> free
enum class SlotState { free, filling, submitted, done, leased };
[[nodiscard]] std::string_view state_name(SlotState state) noexcept;

// Where the engine took an input from or put an output to.
enum class Route {
    slot,    // the slot's own block
    bound,   // the caller's memory, of the same allocator: by pointer
    copied,  // the caller's memory, of any other kind: through the slot's block
};

// A caller's array for tensor `index`: contiguous, or with the strides of the tensor's driver memory.
struct UserArray {
    std::size_t index = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // of the values
    bool driver_strides = false;
};

// One acquisition of a slot. A later one has another generation, so an old handle is refused.
struct SlotId {
    std::size_t index = 0;
    std::uint64_t generation = 0;
    friend bool operator==(const SlotId&, const SlotId&) = default;
};

struct Completion {
    SlotId id;
    std::optional<Error> error;
};

struct SlotInfo {
    SlotState state = SlotState::free;
    std::size_t views = 0;
    std::size_t context = 0;
};

struct RunTimes {  // std::chrono::steady_clock
    std::int64_t started_ns = 0;
    std::int64_t finished_ns = 0;
    std::int64_t step_ns = 0;  // how long the input step took, which ended at the start
};

class Ring;

// Keeps a slot from being reused, and its memory alive, while somebody looks at it.
class View {
public:
    View(std::shared_ptr<Ring> ring, std::size_t slot, std::byte* data, const TensorSpec& spec)
        : ring_(std::move(ring)), slot_(slot), data_(data), spec_(&spec) {}
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    ~View();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] const TensorSpec& spec() const noexcept { return *spec_; }

private:
    std::shared_ptr<Ring> ring_;
    std::size_t slot_;
    std::byte* data_;
    const TensorSpec* spec_;
};

// Safe from any thread.
class Ring : public std::enable_shared_from_this<Ring> {
public:
    static constexpr std::size_t max_depth = 1024;

    // Allocates all blocks; with `probe`, runs each slot once on zeros and checks that the engine
    // wrote every output block. Throws what these throw, and has then given everything back.
    static std::shared_ptr<Ring> create(std::shared_ptr<Executor> executor, std::size_t depth, bool probe);
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring();

    [[nodiscard]] std::size_t depth() const noexcept { return slots_.size(); }
    [[nodiscard]] const std::shared_ptr<Executor>& executor() const noexcept { return executor_; }
    // Readable when there are completions to drain or, once asked for, a slot became free.
    // -1 once the ring is closed.
    [[nodiscard]] int fd() const noexcept;
    void want_free() noexcept;

    // A free slot on the least busy context, now `filling`; nothing when all are taken.
    [[nodiscard]] std::optional<SlotId> try_acquire();
    // filling -> submitted. All sizes are checked before anything is copied or changed.
    std::vector<Route> submit(SlotId id, std::span<const UserArray> inputs,
                              std::span<const UserArray> outputs);
    // The same with the slot's own blocks, where `step` fills the first input on the context's thread
    // before it runs. Throws what the step's `check` throws.
    void submit(SlotId id, std::unique_ptr<InputStep> step);
    // Runs that finished and whose slot was not released meanwhile.
    [[nodiscard]] std::vector<Completion> drain();
    // done -> leased
    RunTimes lease(SlotId id);
    // Any state but free. A submitted slot comes back when the engine lets go of it, a viewed one
    // when its last view is gone.
    void release(SlotId id);

    // Inputs may be viewed while filling, outputs while leased.
    [[nodiscard]] std::shared_ptr<View> view(SlotId id, Direction direction, std::size_t index);
    // Copy an output of a leased slot to a caller's array. Sizes are checked.
    void copy_output(SlotId id, const UserArray& target);

    // Another shape of the first input, where every slot is free and no other ring is open. Blocks
    // that are too small for it are allocated anew. Throws Errc::slot_state, and what the engine throws.
    void reshape(const std::vector<std::int64_t>& shape);

    [[nodiscard]] SlotInfo info(SlotId id) const;
    [[nodiscard]] std::vector<SlotInfo> infos() const;
    // Slots that are with the engine on this context.
    [[nodiscard]] std::size_t running(std::size_t context) const noexcept;
    // From now on everything but release is refused. Blocks go back to their allocators, those of
    // slots that run or are viewed when that is over.
    void close() noexcept;

private:
    friend class View;
    struct Slot;
    class StepGuard;

    Ring(std::shared_ptr<Executor> executor, std::size_t depth);
    void add_slots(std::size_t depth);
    void probe(Slot& slot);
    bool fit(Slot& slot);
    void refit(const std::vector<std::int64_t>& shape);
    [[nodiscard]] const DriverBlock& whole(const Slot& slot, Direction direction, std::size_t index) const;
    void shut() noexcept;
    Slot& checked(SlotId id) const;
    void expect(const Slot& slot, SlotState state, std::string_view action) const;
    void check_arrays(const Slot& slot, Direction direction, std::span<const UserArray> arrays) const;
    void check_wanted(const Slot& slot) const;
    bool begin_step() noexcept;
    void end_step() noexcept;
    void copy_inputs(const Slot& slot, std::span<const UserArray> inputs) const;
    void begin(Slot& slot, std::span<const UserArray> inputs, std::span<const UserArray> outputs);
    void bind(Slot& slot, Direction direction, std::span<const UserArray> arrays);
    void finish(Slot& slot, std::optional<Error> error, RunTimes times) noexcept;
    void settle(Slot& slot) noexcept;
    void drop_view(std::size_t slot) noexcept;
    bool borrow(Slot& slot, Direction direction, const std::byte* base);
    void return_borrowed(Slot& slot) noexcept;

    const std::shared_ptr<Executor> executor_;
    std::optional<Notifier> notifier_{std::in_place};  // until the ring is closed
    // Locks are taken in this order: the ring's, an allocator's, a context queue's. None is held over
    // a call of the driver. What a locked section drops may outlive its guard only: a last reference to
    // the ring destroys this mutex, and what an input step refers to may take any lock. So it is moved
    // into a variable that stands before the guard.
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::vector<Slot*> finished_;
    std::vector<std::size_t> busy_;  // scratch of try_acquire: slots at work, by context
    std::size_t steps_ = 0;          // input steps that run now
    std::condition_variable steps_ended_;
    bool want_free_ = false;
    bool reshaping_ = false;  // slots belong to the thread that reshapes them
    bool closed_ = false;
};

}  // namespace pipeline
