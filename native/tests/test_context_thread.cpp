#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/context_thread.hpp"
#include "core/error.hpp"

using namespace pipeline;

namespace {

struct Trace {
    std::mutex mutex;
    std::vector<std::string> events;
    std::vector<std::thread::id> threads;

    void add(const std::string& event) {
        const std::lock_guard lock(mutex);
        events.push_back(event);
        threads.push_back(std::this_thread::get_id());
    }
};

class TracedContext final : public EngineContext {
public:
    explicit TracedContext(Trace& trace) : trace_(trace) { trace_.add("open"); }
    ~TracedContext() override { trace_.add("close"); }
    DriverBlock allocate(Direction, std::size_t, std::size_t) override { return {}; }
    void release(Direction, std::size_t, DriverBlock) noexcept override {}
    void run(const RunRequest&) override { trace_.add("run"); }

private:
    Trace& trace_;
};

class TracedEngine final : public Engine {
public:
    explicit TracedEngine(Trace& trace, bool fails = false) : trace_(trace), fails_(fails) {}
    ~TracedEngine() override { trace_.add("engine gone"); }
    [[nodiscard]] std::string_view name() const noexcept override { return "traced"; }
    [[nodiscard]] std::string device() const override { return "none"; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return 1; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return none_; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return none_; }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t) override {
        if (fails_) throw Error(Errc::device, "no such device");
        return std::make_unique<TracedContext>(trace_);
    }

private:
    Trace& trace_;
    bool fails_;
    std::vector<TensorSpec> none_;
};

constexpr auto long_enough = std::chrono::seconds(20);

void all_on_one_thread_and_in_order() {
    Trace trace;
    {
        ContextThread thread(std::make_shared<TracedEngine>(trace), 0);
        thread.queue()->call([](EngineContext& context) { context.run({}); }, long_enough);
        thread.request_close();
        CHECK(thread.join(std::chrono::steady_clock::now() + long_enough));
    }
    CHECK((trace.events == std::vector<std::string>{"open", "run", "close", "engine gone"}));
    for (const auto& id : trace.threads) CHECK(id == trace.threads[0] && id != std::this_thread::get_id());
}

void failing_to_open_is_reported() {
    Trace trace;
    CHECK_THROWS(ContextThread(std::make_shared<TracedEngine>(trace, true), 0), Errc::device);
    CHECK((trace.events == std::vector<std::string>{"engine gone"}));
}

void errors_of_a_call_come_back() {
    Trace trace;
    ContextThread thread(std::make_shared<TracedEngine>(trace), 0);
    CHECK_THROWS(thread.queue()->call([](EngineContext&) { throw Error(Errc::run, "bad"); }, long_enough),
                 Errc::run);
    thread.request_close();
    CHECK_THROWS(thread.queue()->call([](EngineContext&) {}, long_enough), Errc::closed);
    CHECK(thread.join(std::chrono::steady_clock::now() + long_enough));
}

void a_hanging_context_is_left_behind() {
    Trace trace;
    std::atomic<bool> go{false};
    std::atomic<bool> started{false};
    std::shared_ptr<ContextQueue> queue;
    {
        ContextThread thread(std::make_shared<TracedEngine>(trace), 0);
        queue = thread.queue();
        CHECK_THROWS(queue->call(
                         [&](EngineContext&) {
                             started = true;
                             while (!go) std::this_thread::yield();
                         },
                         std::chrono::nanoseconds(1)),
                     Errc::device);
        while (!started) std::this_thread::yield();
        thread.request_close();
        CHECK(!thread.join(std::chrono::steady_clock::now()));
    }
    go = true;
    while (true) {
        const std::lock_guard lock(trace.mutex);
        if (trace.events.back() == "engine gone") break;
    }
}

}  // namespace

int main() {
    all_on_one_thread_and_in_order();
    failing_to_open_is_reported();
    errors_of_a_call_come_back();
    a_hanging_context_is_left_behind();
}
