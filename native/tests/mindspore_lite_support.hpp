// What the tests of engine mindspore_lite share: a stand-in, a model for it, and what that computes.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "core/ring.hpp"
#include "engines/dylib.hpp"
#include "engines/mindspore_lite/engine.hpp"
#include "support.hpp"

namespace pipeline::test {

inline constexpr auto seconds = std::chrono::seconds(20);
inline constexpr const char* model_text =
    "mindspore-lite-standin\n"
    "input image uint8 NHWC 1 4 4 3\n"
    "input extra int32 NCHW 1 5\n"
    "output scores float32 NCHW 1 10\n"
    "output map uint8 NHWC 1 2 3 2\n"
    "output wide int64 NCHW 3 5\n";
inline constexpr std::size_t image_bytes = 48;
inline constexpr std::size_t extra_count = 5;
inline constexpr std::array<std::size_t, 3> output_counts = {10, 12, 15};

struct Library {
    Library(const std::string& path, std::string f) : dylib(path), family(std::move(f)) {}
    [[nodiscard]] std::int64_t count(const char* name) const {
        return dylib.symbol<std::int64_t (*)(const char*)>("standin_mslite_count")(name);
    }
    void reset() const { dylib.symbol<void (*)()>("standin_mslite_reset")(); }
    Dylib dylib;
    std::string family;
};

// Each test begins with the switches it names, and ends with nothing alive and no rule broken.
class Bench {
public:
    explicit Bench(const Library& l) : library(l) {
        folder_ = std::filesystem::temp_directory_path() / ("mslite-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder_);
        write(model_text);
        library.reset();
    }
    ~Bench() {
        for (const auto& name : set_) ::unsetenv(name.c_str());
        CHECK(library.count("violations") == 0);
        for (const char* kind : {"models_live", "contexts_live", "devices_live", "tensors_live", "lists_live",
                                 "blocks_live", "allocators_live"}) {
            if (renewed && std::string_view(kind) == "allocators_live") continue;
            // The thread that opened a context may be the last to let go of it.
            eventually([&] { return library.count(kind) == 0; });
        }
        if (!renewed) {
            eventually([&] { return library.count("driver_allocations") == library.count("driver_frees"); });
        }
        std::filesystem::remove_all(folder_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void write(const std::string& text) const { std::ofstream(model()) << text; }
    [[nodiscard]] std::string model() const { return (folder_ / "model.ms").string(); }
    void turn(const std::string& name, const std::string& value) {
        set_.push_back("STANDIN_MSLITE_" + name);
        ::setenv(set_.back().c_str(), value.c_str(), 1);
        if (name == "RENEWED") renewed = true;
    }
    [[nodiscard]] bool oh() const { return library.family == "OH_AI"; }

    [[nodiscard]] MindSporeLiteOptions options() const {
        MindSporeLiteOptions result;
        result.library = library.dylib.path();
        result.model = model();
        result.device = "CPU";
        return result;
    }
    [[nodiscard]] std::shared_ptr<Executor> open(std::size_t contexts = 1) const {
        MindSporeLiteOptions result = options();
        result.contexts = contexts;
        return open(result);
    }
    [[nodiscard]] static std::shared_ptr<Executor> open(const MindSporeLiteOptions& o) {
        return std::make_shared<Executor>(open_mindspore_lite(o),
                                          Allocator::Limits{std::size_t{1} << 20, seconds});
    }

    const Library& library;
    bool renewed = false;

private:
    std::filesystem::path folder_;
    std::vector<std::string> set_;
};

struct Values {
    explicit Values(std::size_t seed) {
        for (std::size_t i = 0; i < image.size(); ++i)
            image[i] = static_cast<std::uint8_t>(seed * 31 + i * 7);
        for (std::size_t i = 0; i < extra.size(); ++i)
            extra[i] = static_cast<std::int32_t>(seed % 100 + i) - 50;
    }
    // Element `k` of output `j`, by the stand-in's rule.
    [[nodiscard]] std::int64_t expected(std::size_t j, std::size_t k) const {
        auto sum = static_cast<std::int64_t>(j + 1);
        for (std::size_t i = k; i < image.size(); i += output_counts[j]) sum += image[i];
        for (std::size_t i = k; i < extra.size(); i += output_counts[j]) sum += 2 * extra[i];
        return sum;
    }
    // Whether `data` is output `j` for these inputs.
    [[nodiscard]] bool match(std::size_t j, const std::byte* data) const {
        for (std::size_t k = 0; k < output_counts[j]; ++k) {
            const std::int64_t wanted = expected(j, k);
            float real = 0;
            std::int64_t wide = 0;
            if (j == 0) std::memcpy(&real, data + 4 * k, 4);
            if (j == 2) std::memcpy(&wide, data + 8 * k, 8);
            const bool same = j == 0   ? real == static_cast<float>(wanted)
                              : j == 1 ? data[k] == static_cast<std::byte>(wanted & 0xFF)
                                       : wide == wanted;
            if (!same) return false;
        }
        return true;
    }

    std::array<std::uint8_t, image_bytes> image{};
    std::array<std::int32_t, extra_count> extra{};
};

inline void fill(Ring& ring, SlotId id, const Values& values) {
    std::memcpy(ring.view(id, Direction::input, 0)->data(), values.image.data(), image_bytes);
    std::memcpy(ring.view(id, Direction::input, 1)->data(), values.extra.data(), sizeof values.extra);
}

// One run on the slot's own memory; its error, if it had one.
inline std::optional<Error> run(Ring& ring, std::size_t seed) {
    const Values values(seed);
    const SlotId id = acquire(ring);
    fill(ring, id, values);
    ring.submit(id, {}, {});
    const auto done = wait_completions(ring);
    CHECK(done.size() == 1);
    if (!done[0].error) {
        ring.lease(id);
        for (std::size_t j = 0; j < output_counts.size(); ++j) {
            CHECK(values.match(j, ring.view(id, Direction::output, j)->data()));
        }
    }
    ring.release(id);
    return done[0].error;
}

inline void close(std::shared_ptr<Executor>& executor, std::shared_ptr<Ring>& ring) {
    ring->close();
    CHECK(executor->close(seconds));
    ring.reset();
    executor.reset();
}

// Everything works with these switches; what each tensor is told to take is given to `check`.
template <class Check>
void works(Bench& bench, Check check) {
    auto executor = bench.open(2);
    auto ring = Ring::create(executor, 3, true);
    for (std::size_t seed = 0; seed < 50; ++seed) CHECK(!run(*ring, seed));
    check(*executor);
    close(executor, ring);
}

}  // namespace pipeline::test
