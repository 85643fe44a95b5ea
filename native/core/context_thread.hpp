// The one thread that opens, runs and destroys an executor context, and its command queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/engine.hpp"

namespace pipeline {

// Something for a context's thread to do. Commands are linked, not copied, so queueing one
// allocates nothing; the owner keeps it alive until `execute` was called.
struct Command {
    Command() = default;
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;
    virtual ~Command() = default;
    virtual void execute(EngineContext& context) noexcept = 0;

    Command* next = nullptr;
};

// What outlives the thread's handle: blocks and rings hold it so that they can still reach the
// thread that must free their memory. The thread ends when it was asked to and no block is left.
class ContextQueue {
public:
    ContextQueue() noexcept;
    // False in a child of the process that made it, which has no such thread.
    [[nodiscard]] bool in_own_process() const noexcept;
    // Throws Errc::closed where that is so.
    void check_process() const;

    void post(Command& command) noexcept;
    // The same, but false instead of queueing once the thread was asked to end.
    [[nodiscard]] bool try_post(Command& command) noexcept;
    // Run `task` on the thread and wait; rethrows what it throws. Throws Errc::closed after close,
    // Errc::device when the context does not answer in `timeout` (it hangs in a run).
    void call(std::function<void(EngineContext&)> task, std::chrono::nanoseconds timeout);

    // Each live block keeps the thread alive.
    void block_added() noexcept;
    void block_removed() noexcept;

private:
    friend class ContextThread;

    void link(Command& command) noexcept;

    const unsigned forks_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Command* first_ = nullptr;
    Command* last_ = nullptr;
    std::size_t blocks_ = 0;
    bool busy_ = false;  // executing a command
    bool closing_ = false;
    bool exited_ = false;
};

// Handle to the thread. Destroying it asks the thread to end and does not wait.
class ContextThread {
public:
    // Returns once the context is open; rethrows what opening threw.
    ContextThread(std::shared_ptr<Engine> engine, std::size_t index);
    ContextThread(const ContextThread&) = delete;
    ContextThread& operator=(const ContextThread&) = delete;
    ~ContextThread();

    [[nodiscard]] const std::shared_ptr<ContextQueue>& queue() const noexcept { return queue_; }

    // Ask the thread to end once its commands are done and its blocks are freed.
    void request_close() noexcept;
    // True when it ended before `deadline`; false at the deadline, or as soon as only references to
    // its blocks are left to wait for. Then it goes on owning the context and its memory, and ends
    // by itself when the engine and the references let go.
    [[nodiscard]] bool join(std::chrono::steady_clock::time_point deadline);

private:
    std::shared_ptr<ContextQueue> queue_ = std::make_shared<ContextQueue>();
    std::mutex joining_;
    std::thread thread_;
};

}  // namespace pipeline
