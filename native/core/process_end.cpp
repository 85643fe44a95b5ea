// The process-wide list of engine threads, the handler of exit and the count of forks.
#include "core/process_end.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace pipeline {
namespace {

// Plain atomics: a lock could be held by a thread that a fork abandoned.
std::atomic<int> threads{0};
std::atomic<int> working{0};
std::atomic<bool> ending{false};
std::atomic<bool> inherited{false};  // this is a child, whose parent had engine threads
std::atomic<unsigned> forks{0};

void in_child() noexcept {
    if (threads.exchange(0) > 0) inherited = true;
    working = 0;
    ++forks;
}

void flush(std::FILE* file) noexcept {
    // A thread that hangs may hold its lock.
    if (ftrylockfile(file) != 0) return;
    std::fflush(file);
    funlockfile(file);
}

[[maybe_unused]] void at_end(int status, void* /*unused*/) noexcept {
    if (threads == 0 && !inherited) return;
    ending = true;
    const auto limit = std::chrono::steady_clock::now() + end_limit;
    while (working > 0 && std::chrono::steady_clock::now() < limit) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    flush(stdout);
    flush(stderr);
    _exit(status);
}

}  // namespace

void guard_process_end() noexcept {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, in_child); });
#ifdef __GLIBC__
    // Others register what they must undo at any time, so each call comes before those.
    on_exit(at_end, nullptr);
#endif
}

unsigned fork_count() noexcept { return forks; }

EngineThread::EngineThread() noexcept {
    ++threads;
    work();
}

EngineThread::~EngineThread() {
    --working;
    --threads;
}

void EngineThread::rest() noexcept { --working; }

void EngineThread::work() noexcept {
    ++working;
    if (!ending) return;
    --working;
    while (true) pause();
}

}  // namespace pipeline
