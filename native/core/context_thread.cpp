#include "core/context_thread.hpp"

#include <exception>
#include <future>
#include <utility>

#include "core/error.hpp"

namespace pipeline {
namespace {

// A call that its caller may give up waiting for, so it owns all it needs.
struct Call final : Command {
    explicit Call(std::function<void(EngineContext&)> t) : task(std::move(t)) {}

    void execute(EngineContext& context) noexcept override {
        const std::unique_ptr<Call> self(this);
        try {
            task(context);
            done.set_value();
        } catch (...) {
            done.set_exception(std::current_exception());
        }
    }

    std::function<void(EngineContext&)> task;
    std::promise<void> done;
};

}  // namespace

void ContextQueue::link(Command& command) noexcept {
    command.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &command;
    last_ = &command;
}

void ContextQueue::post(Command& command) noexcept {
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
    auto command = std::make_unique<Call>(std::move(task));
    auto done = command->done.get_future();
    if (!try_post(*command)) throw Error(Errc::closed, "executor: closed");
    static_cast<void>(command.release());  // it deletes itself once executed
    if (done.wait_for(timeout) != std::future_status::ready) {
        throw Error(Errc::device, "executor: the context does not answer; it is busy or hangs in a run");
    }
    done.get();
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
    std::promise<void> opened;
    auto ready = opened.get_future();
    // The thread owns all it touches, so that it can be left behind when the engine hangs.
    thread_ = std::thread([queue = queue_, engine = std::move(engine), index,
                           opened = std::move(opened)]() mutable {
        std::unique_ptr<EngineContext> context;
        try {
            context = engine->open_context(index);
            opened.set_value();
        } catch (...) {
            opened.set_exception(std::current_exception());
            return;
        }
        std::unique_lock lock(queue->mutex_);
        while (true) {
            queue->changed_.wait(
                lock, [&] { return queue->first_ != nullptr || (queue->closing_ && queue->blocks_ == 0); });
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
        ready.get();
    } catch (...) {
        thread_.join();
        throw;
    }
}

void ContextThread::request_close() noexcept {
    {
        const std::lock_guard lock(queue_->mutex_);
        queue_->closing_ = true;
    }
    queue_->changed_.notify_all();
}

bool ContextThread::join(std::chrono::steady_clock::time_point deadline) {
    const std::lock_guard joining(joining_);
    if (!thread_.joinable()) return true;
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
    request_close();
    if (!join(std::chrono::steady_clock::now())) thread_.detach();
}

}  // namespace pipeline
