// The queue of commands, the thread that executes them, and how callers wait for one.
#include "core/context_thread.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/process_end.hpp"

namespace pipeline {
namespace {

// How something on the thread ended, for whoever waits for it. The message is copied, as one shared
// by reference count would tie the two threads together without a lock.
class Outcome {
public:
    // Runs `action` and keeps what it throws.
    template <typename Action>
    void of(Action&& action) noexcept {
        try {
            action();
            settle(std::nullopt, "");
        } catch (const Error& error) {
            settle(error.code(), error.what());
        } catch (const std::exception& error) {
            settle(Errc::engine, error.what());
        } catch (...) {
            settle(Errc::engine, "the engine threw something that is no exception");
        }
    }

    // False when it did not end in time; throws what was kept.
    [[nodiscard]] bool wait(std::optional<std::chrono::nanoseconds> timeout = std::nullopt) {
        std::unique_lock lock(mutex_);
        const auto ended = [this] { return ended_; };
        if (!timeout) {
            settled_.wait(lock, ended);
        } else if (!settled_.wait_for(lock, *timeout, ended)) {
            return false;
        }
        if (code_) throw Error(*code_, message_);
        return true;
    }

private:
    void settle(std::optional<Errc> code, const char* message) noexcept {
        const std::lock_guard lock(mutex_);
        code_ = code;
        message_ = message;
        ended_ = true;
        settled_.notify_all();  // under the lock: the one who waits may destroy this at once
    }

    std::mutex mutex_;
    std::condition_variable settled_;
    bool ended_ = false;
    std::optional<Errc> code_;
    std::string message_;
};

// A call that its caller may give up waiting for, so it owns all it needs.
struct Call final : Command {
    explicit Call(std::function<void(EngineContext&)> t) : task(std::move(t)) {}

    void execute(EngineContext& context) noexcept override {
        const std::unique_ptr<Call> self(this);
        outcome->of([&] { task(context); });
    }

    std::function<void(EngineContext&)> task;
    std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
};

}  // namespace

void ContextQueue::link(Command& command) noexcept {
    command.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &command;
    last_ = &command;
}

void ContextQueue::post(Command& command) noexcept {
    if (!in_own_process()) return;  // nobody would execute it, or ever free this memory
    {
        const std::lock_guard lock(mutex_);
        link(command);
    }
    changed_.notify_all();
}

bool ContextQueue::try_post(Command& command) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (closing_) return false;
        link(command);
    }
    changed_.notify_all();
    return true;
}

void ContextQueue::call(std::function<void(EngineContext&)> task, std::chrono::nanoseconds timeout) {
    check_process();
    auto command = std::make_unique<Call>(std::move(task));
    const auto outcome = command->outcome;
    if (!try_post(*command)) throw Error(Errc::closed, "executor: closed");
    static_cast<void>(command.release());  // it deletes itself once executed
    if (!outcome->wait(timeout)) {
        throw Error(Errc::device, "executor: the context does not answer; it is busy or hangs in a run");
    }
}

ContextQueue::ContextQueue() noexcept : forks_(fork_count()) {}

bool ContextQueue::in_own_process() const noexcept { return forks_ == fork_count(); }

void ContextQueue::check_process() const {
    if (in_own_process()) return;
    throw Error(Errc::closed, "executor: opened before this process was forked; open one in it");
}

void ContextQueue::block_added() noexcept {
    const std::lock_guard lock(mutex_);
    ++blocks_;
}

void ContextQueue::block_removed() noexcept {
    {
        const std::lock_guard lock(mutex_);
        --blocks_;
    }
    changed_.notify_all();
}

ContextThread::ContextThread(std::shared_ptr<Engine> engine, std::size_t index) {
    const auto opened = std::make_shared<Outcome>();
    // The thread owns all it touches, so that it can be abandoned when the engine hangs.
    thread_ = std::thread([queue = queue_, engine = std::move(engine), index, opened]() mutable {
        EngineThread thread;
        std::unique_ptr<EngineContext> context;
        opened->of([&] { context = engine->open_context(index); });
        if (!context) {
            engine.reset();
            return;
        }
        std::unique_lock lock(queue->mutex_);
        while (true) {
            thread.rest();
            queue->changed_.wait(
                lock, [&] { return queue->first_ != nullptr || (queue->closing_ && queue->blocks_ == 0); });
            thread.work();
            Command* const command = queue->first_;
            if (command == nullptr) break;
            queue->first_ = command->next;
            if (queue->first_ == nullptr) queue->last_ = nullptr;
            queue->busy_ = true;
            lock.unlock();
            command->execute(*context);
            lock.lock();
            queue->busy_ = false;
            if (queue->closing_) queue->changed_.notify_all();
        }
        lock.unlock();
        context.reset();  // blocks are gone; then the context, then the engine with the last of them
        engine.reset();
        lock.lock();
        queue->exited_ = true;
        queue->changed_.notify_all();
    });
    try {
        static_cast<void>(opened->wait());
    } catch (...) {
        thread_.join();
        throw;
    }
}

void ContextThread::request_close() noexcept {
    if (!queue_->in_own_process()) return;
    {
        const std::lock_guard lock(queue_->mutex_);
        queue_->closing_ = true;
    }
    queue_->changed_.notify_all();
}

bool ContextThread::join(std::chrono::steady_clock::time_point deadline) {
    const std::lock_guard joining(joining_);
    if (!thread_.joinable() || !queue_->in_own_process()) return true;
    std::unique_lock lock(queue_->mutex_);
    queue_->changed_.wait_until(lock, deadline, [&] {
        const bool idle = queue_->first_ == nullptr && !queue_->busy_;
        return queue_->exited_ || (idle && queue_->blocks_ > 0);
    });
    if (!queue_->exited_) return false;
    lock.unlock();
    thread_.join();
    return true;
}

ContextThread::~ContextThread() {
    if (!thread_.joinable()) return;
    if (!queue_->in_own_process()) {
        static_cast<void>(
            std::make_unique<std::thread>(std::move(thread_)).release());  // there is none to wait for
        return;
    }
    request_close();
    if (!join(std::chrono::steady_clock::now())) thread_.detach();
}

}  // namespace pipeline
