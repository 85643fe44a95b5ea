#include "state.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace standin {

namespace {

std::mutex text_mutex;
std::string last_misuse;  // under text_mutex

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string word(const char* variable, const char* otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr || *text == '\0' ? otherwise : text;
}

int cores_of(const std::string& chip) {
    if (chip == "rk3588") return 3;
    return chip == "rk3576" ? 2 : 1;
}

Rebind rebinding(const std::string& text) {
    if (text == "ignore") return Rebind::ignore;
    return text == "refuse" ? Rebind::refuse : Rebind::honour;
}

}  // namespace

Fault::Fault(const char* variable) : at_(number(variable, 0)) {
    const std::string text = word(variable, "");
    onwards_ = !text.empty() && text.back() == '+';
}

bool Fault::next() noexcept {
    if (at_ == 0) return false;
    const std::uint64_t count = ++count_;
    return count == at_ || (onwards_ && count > at_);
}

Switches::Switches()
    : chip(word("STANDIN_RKNN_CHIP", "rk3588")),
      cores(static_cast<int>(number("STANDIN_RKNN_CORES", static_cast<std::uint64_t>(cores_of(chip))))),
      rebind(rebinding(word("STANDIN_RKNN_REBIND", ""))),
      max_model_version(static_cast<std::uint32_t>(number("STANDIN_RKNN_MAX_MODEL_VERSION", 6))),
      one_thread(number("STANDIN_RKNN_ONE_THREAD", 0) != 0),
      fail_code(-static_cast<std::int32_t>(number("STANDIN_RKNN_FAIL_CODE", 1))) {
    const std::string us = word("STANDIN_RKNN_RUN_US", "");
    if (!us.empty()) run_us = static_cast<std::uint32_t>(number("STANDIN_RKNN_RUN_US", 0));
    cores = std::clamp(cores, 1, 3);
}

Counters& counters() noexcept {
    static Counters all;
    return all;
}

int misuse(int code, const char* function, const std::string& what) {
    const std::string text = std::string(function) + ": " + what;
    ++counters().misuse;
    std::fprintf(stderr, "librknnrt stand-in: %s (returns %d)\n", text.c_str(), code);
    const std::lock_guard lock(text_mutex);
    last_misuse = text;
    return code;
}

Loaded::Loaded(std::shared_ptr<const Model> m) : model(std::move(m)) { ++counters().live_weights; }
Loaded::~Loaded() { --counters().live_weights; }

bool Mem::tampered() const noexcept {
    return given.virt_addr != made.virt_addr || given.fd != made.fd || given.offset != made.offset ||
           given.size != made.size || given.priv_data != made.priv_data;
}

// The mapping's end beyond the size that was asked for holds a pattern.
bool Mem::overrun() const noexcept {
    const auto* end = static_cast<const std::uint8_t*>(made.virt_addr) + mapped;
    return mapped != 0 && std::any_of(data() + made.size, const_cast<std::uint8_t*>(end),
                                      [](std::uint8_t byte) { return byte != 0xCD; });
}

ContextState::ContextState(rknn::Context handle, std::shared_ptr<Loaded> l, std::shared_ptr<Switches> s,
                           std::uint32_t f)
    : id(handle), loaded(std::move(l)), switches(std::move(s)), flags(f) {
    if (!model().dynamic()) shape = 0;
    inputs.resize(model().inputs.size());
    outputs.resize(model().outputs.size());
    given.resize(inputs.size());
    bytes_given.resize(inputs.size());
    ++counters().live_contexts;
    counters().internal_bytes += model().internal_bytes();
}

ContextState::~ContextState() {
    --counters().live_contexts;
    counters().internal_bytes -= model().internal_bytes();
}

bool ContextState::flushes(bool input) const noexcept {
    const auto off = input ? rknn::init_flag::disable_flush_input_mem_cache
                           : rknn::init_flag::disable_flush_output_mem_cache;
    return (flags & off) == 0;
}

std::shared_ptr<ContextState> Registry::find(rknn::Context handle) {
    const std::lock_guard lock(mutex_);
    const auto found = contexts_.find(handle);
    return found == contexts_.end() ? nullptr : found->second;
}

rknn::Context Registry::add(std::shared_ptr<Loaded> loaded, std::shared_ptr<Switches> switches,
                            std::uint32_t flags) {
    const std::lock_guard lock(mutex_);
    const auto handle = next_;
    next_ += 0x10;
    contexts_[handle] = std::make_shared<ContextState>(handle, std::move(loaded), std::move(switches), flags);
    return handle;
}

void Registry::remove(rknn::Context handle) {
    const std::lock_guard lock(mutex_);
    contexts_.erase(handle);
}

Mem* Registry::find_mem(const rknn::TensorMem* mem) {
    const std::lock_guard lock(mutex_);
    const auto found = mems_.find(mem);
    return found == mems_.end() ? nullptr : found->second.get();
}

Mem* Registry::add_mem(std::unique_ptr<Mem> mem) {
    const std::lock_guard lock(mutex_);
    return (mems_[&mem->given] = std::move(mem)).get();
}

std::size_t Registry::live_mems(rknn::Context owner) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(mems_.begin(), mems_.end(), [&](const auto& m) {
        return m.second->owner == owner && m.second->live;
    }));
}

Registry& registry() {
    static auto* const all = new Registry;  // clients may call until the process ends
    return *all;
}

Call::Call(const char* function, rknn::Context handle, Uses uses) : function_(function) {
    ++counters().calls;
    context_ = registry().find(handle);
    if (context_ == nullptr) {
        code_ = misuse(rknn::status::ctx_invalid, "no such context, or it was destroyed");
        return;
    }
    const char* inside = nullptr;
    if (!context_->busy.compare_exchange_strong(inside, function)) {
        context_ = nullptr;
        code_ = misuse(rknn::status::fail, std::string("called while ") + inside +
                                               " is inside the same context on another thread");
        return;
    }
    if (uses == Uses::memory && context_->switches->one_thread) {
        std::thread::id none{};
        const auto self = std::this_thread::get_id();
        if (!context_->pinned.compare_exchange_strong(none, self) && none != self) {
            code_ = misuse(rknn::status::fail, "another thread than the one that first used the context");
        }
    }
}

Call::~Call() {
    if (context_ != nullptr) context_->busy = nullptr;
}

Mem* Call::memory(const rknn::TensorMem* mem) const {
    Mem* const found = registry().find_mem(mem);
    const char* wrong = nullptr;
    if (mem == nullptr) {
        wrong = "the memory is null";
    } else if (found == nullptr) {
        wrong = "the memory was not made by this library";
    } else if (!found->live) {
        wrong = "the memory was destroyed";
    } else if (found->owner != context_->id) {
        wrong = "the memory is another context's";
    } else if (found->tampered()) {
        wrong = "the memory's struct was changed";
    }
    if (wrong == nullptr) return found;
    misuse(rknn::status::param_invalid, wrong);
    return nullptr;
}

void Hangs::arm() {
    const std::lock_guard lock(mutex_);
    released_ = false;
}

void Hangs::release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
}

void Hangs::wait() {
    std::unique_lock lock(mutex_);
    ++hanging_;
    changed_.wait(lock, [&] { return released_; });
    --hanging_;
}

std::uint32_t Hangs::hanging() {
    const std::lock_guard lock(mutex_);
    return hanging_;
}

Hangs& hangs() {
    static auto* const all = new Hangs;
    return *all;
}

}  // namespace standin

extern "C" {

[[gnu::visibility("default")]] int standin_stats(standin::Stats* out, std::uint32_t size) {
    if (out == nullptr || size != sizeof(standin::Stats)) return pipeline::rknn::status::param_invalid;
    const auto& c = standin::counters();
    *out = {c.calls,         c.runs,         c.allocations,    c.live_mems,   c.live_contexts,
            c.live_outputs,  c.live_weights, c.misuse,         c.binds,       c.binds_ignored,
            c.syncs,         c.copies,       c.copied_bytes,   c.conversions, c.internal_bytes,
            c.device_cpu_ns, c.copy_cpu_ns,  c.priority_raises};
    return pipeline::rknn::status::success;
}

[[gnu::visibility("default")]] std::uint32_t standin_last_misuse(char* text, std::uint32_t size) {
    const std::lock_guard lock(standin::text_mutex);
    if (text != nullptr && size != 0) std::snprintf(text, size, "%s", standin::last_misuse.c_str());
    return static_cast<std::uint32_t>(standin::last_misuse.size());
}

[[gnu::visibility("default")]] void standin_release_hangs() { standin::hangs().release(); }

[[gnu::visibility("default")]] std::uint32_t standin_hanging() { return standin::hangs().hanging(); }

}  // extern "C"
