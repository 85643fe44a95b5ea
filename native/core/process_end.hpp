// The end of the process, and forks, while threads are at work in an engine's library.
#pragma once

#include <atomic>
#include <chrono>

namespace pipeline {

// Runs at the end of the process get this long; then it ends without them.
inline constexpr std::chrono::seconds end_limit{2};

// Have the end of the process, from exit() on, wait for engine threads and then end at once with
// the program's own code, instead of running the destructors of libraries under their feet. It
// comes before whatever was registered until now, so call it after a library was loaded.
void guard_process_end() noexcept;

// Counts forks. What was made before one has no threads in the child.
[[nodiscard]] unsigned fork_count() noexcept;

// A thread that calls an engine, for as long as it lives: at work, or resting between commands.
class EngineThread {
public:
    EngineThread() noexcept;
    ~EngineThread();
    EngineThread(const EngineThread&) = delete;
    EngineThread& operator=(const EngineThread&) = delete;

    void rest() noexcept;
    // Never returns once the process ends: an engine must not be called any more.
    void work() noexcept;
};

}  // namespace pipeline
