// What the tests of the engine "rknn" share: the stand-in and its switches, models, compared frames.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "engines/dylib.hpp"
#include "engines/rknn/engine.hpp"
#include "rknn_model.hpp"
#include "support.hpp"
#include "vendor/rknn/standin.hpp"

namespace pipeline::test {

inline constexpr auto limit = std::chrono::seconds(20);

// The stand-in's counts; at the end nothing may be left, and no rule may have been broken.
class Standin {
public:
    explicit Standin(const std::string& path) : library_(path) {
        wait_until_empty();
        before_ = stats();
    }
    ~Standin() {
        wait_until_empty();
        const auto now = stats();
        if (now.misuse != before_.misuse) {
            std::string text(512, '\0');
            library_.symbol<::standin::LastMisuseFn>("standin_last_misuse")(text.data(), 512);
            fail(__FILE__, __LINE__, "misuse", text.c_str());
        }
        CHECK(now.priority_raises == before_.priority_raises);
    }
    Standin(const Standin&) = delete;
    Standin& operator=(const Standin&) = delete;

    [[nodiscard]] ::standin::Stats stats() const {
        ::standin::Stats result{};
        CHECK(library_.symbol<::standin::StatsFn>("standin_stats")(&result, sizeof result) == 0);
        return result;
    }
    void release_hangs() const { library_.symbol<::standin::ReleaseHangsFn>("standin_release_hangs")(); }
    [[nodiscard]] std::uint32_t hanging() const {
        return library_.symbol<::standin::HangingFn>("standin_hanging")();
    }

private:
    // Executors that were not closed end by themselves, on threads of their own.
    void wait_until_empty() const {
        eventually([this] {
            const auto now = stats();
            return now.live_mems + now.live_contexts + now.live_weights + now.live_outputs == 0;
        });
    }

    Dylib library_;
    ::standin::Stats before_{};
};

// A switch of the stand-in while it lives.
class Switch {
public:
    Switch(const char* name, const char* value) : name_(std::string("STANDIN_RKNN_") + name) {
        CHECK(::setenv(name_.c_str(), value, 1) == 0);
    }
    Switch(const Switch&) = delete;
    Switch& operator=(const Switch&) = delete;
    ~Switch() { ::unsetenv(name_.c_str()); }

private:
    std::string name_;
};

// The folder for models, gone at the end.
class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("test_rknn_" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
        const auto path = path_ / name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path.string();
    }

private:
    std::filesystem::path path_;
};

inline std::string library;
inline std::string old_library;
inline const Folder* folder = nullptr;

inline RknnOptions rknn_options(const RknnModel& model = {}) {
    RknnOptions result;
    result.library = library;
    result.model = folder->write("model.rknn", model.bytes());
    return result;
}

inline std::shared_ptr<Executor> open(const RknnOptions& o) {
    return std::make_shared<Executor>(open_rknn(o), Allocator::Limits{std::size_t{1} << 26, limit});
}

inline std::vector<std::uint8_t> make_image(const RknnModel& model, unsigned seed) {
    std::vector<std::uint8_t> image(model.image_bytes());
    unsigned state = seed;
    for (auto& byte : image) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::uint8_t>(state >> 24U);
    }
    return image;
}

// Into the slot's input, row by row where rows are padded.
inline void fill(Ring& ring, SlotId id, const std::vector<std::uint8_t>& image) {
    const auto view = ring.view(id, Direction::input, 0);
    for_each_run(view->spec(), [&](std::size_t to, std::size_t from, std::size_t bytes) {
        std::memcpy(view->data() + to, image.data() + from, bytes);
    });
}

// What the slot's output must hold, whatever its strides and type.
inline void check_output(Ring& ring, SlotId id, const RknnModel& model,
                         const std::vector<std::uint8_t>& image, const std::byte** where = nullptr) {
    const auto expected = model.run(image);
    const auto view = ring.view(id, Direction::output, 0);
    if (where != nullptr) *where = view->data();
    const bool real = view->spec().dtype == DType::f32;
    CHECK(view->spec().byte_size() == expected.size() * (real ? sizeof(float) : 1));
    std::size_t compared = 0;
    for_each_run(view->spec(), [&](std::size_t driver, std::size_t dense, std::size_t bytes) {
        for (std::size_t k = 0; k < bytes; k += real ? sizeof(float) : 1) {
            const auto& quantum = expected[(dense + k) / (real ? sizeof(float) : 1)];
            if (real) {
                float value = 0;
                std::memcpy(&value, view->data() + driver + k, sizeof value);
                CHECK(value == static_cast<float>(quantum - RknnModel::zero) * RknnModel::scale);
            } else {
                CHECK(static_cast<std::int8_t>(view->data()[driver + k]) == quantum);
            }
            ++compared;
        }
    });
    CHECK(compared == expected.size());
}

// One frame: its image in, awaited, compared.
inline void run_one(Ring& ring, const RknnModel& model, unsigned seed) {
    const auto image = make_image(model, seed);
    const SlotId id = acquire(ring);
    fill(ring, id, image);
    ring.submit(id, {}, {});
    const auto done = wait_completions(ring);
    CHECK(done.size() == 1);
    if (done[0].error) fail(__FILE__, __LINE__, "run", done[0].error->what());
    ring.lease(id);
    check_output(ring, id, model, image);
    ring.release(id);
}

// The error of one frame's run.
inline Error failed_run(Ring& ring, const RknnModel& model) {
    const SlotId id = acquire(ring);
    fill(ring, id, make_image(model, 1));
    ring.submit(id, {}, {});
    const auto done = wait_completions(ring);
    CHECK(done.size() == 1 && done[0].error);
    ring.release(id);
    return *done[0].error;
}

inline bool has(const Error& error, Errc code, std::string_view part) {
    if (error.code() == code && std::string_view(error.what()).find(part) != std::string_view::npos)
        return true;
    std::fprintf(stderr, "the error is: %s\n", error.what());
    return false;
}

inline std::size_t descriptors() {
    std::size_t count = 0;
    DIR* const all = ::opendir("/proc/self/fd");
    CHECK(all != nullptr);
    while (::readdir(all) != nullptr) ++count;
    ::closedir(all);
    return count;
}

// Frames through the ring with as many in flight as it has slots, compared in order.
inline void stream(const RknnOptions& o, const RknnModel& model, std::size_t frames) {
    const Standin standin(library);
    const auto executor = open(o);
    CHECK(executor->context_count() == 3);
    const auto ring = Ring::create(executor, 5, true);
    std::deque<std::pair<SlotId, unsigned>> flying;
    std::vector<const std::byte*> where(ring->depth());
    const auto allocations = standin.stats().allocations;
    const auto open_files = descriptors();
    for (unsigned next = 0; next < frames || !flying.empty();) {
        const auto id = next < frames ? ring->try_acquire() : std::nullopt;
        if (id) {
            fill(*ring, *id, make_image(model, next));
            ring->submit(*id, {}, {});
            flying.emplace_back(*id, next++);
            continue;
        }
        const auto [oldest, seed] = flying.front();
        while (ring->info(oldest).state == SlotState::submitted) {
            wait_readable(*ring);
            static_cast<void>(ring->drain());
        }
        ring->lease(oldest);
        const std::byte* at = nullptr;
        check_output(*ring, oldest, model, make_image(model, seed), &at);
        CHECK(where[oldest.index] == nullptr || where[oldest.index] == at);
        where[oldest.index] = at;
        ring->release(oldest);
        flying.pop_front();
    }
    CHECK(standin.stats().allocations == allocations);
    CHECK(descriptors() == open_files);
    ring->close();
    CHECK(executor->close(limit));
}

// The arguments of each test: LIBRARY_2_3 LIBRARY_1_5
inline void use_libraries(int argc, char** argv, const Folder& models) {
    CHECK(argc == 3);
    library = argv[1];
    old_library = argv[2];
    folder = &models;
}

}  // namespace pipeline::test
