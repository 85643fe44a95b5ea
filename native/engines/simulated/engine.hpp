// A simulated NPU with memory of its own, set latency and scripted faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine.hpp"

namespace pipeline {

enum class LatencyDistribution { fixed, uniform, normal, exponential };

// Runs are counted from 1 over all contexts, in the order in which they begin.
struct SimulatedOptions {
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::size_t contexts = 1;
    std::size_t cores = 0;  // runs that are computed at the same time, the others wait; 0: all
    double latency_us = 0;  // mean time of a run
    double jitter_us = 0;   // uniform: half width; normal: standard deviation; exponential: mean of an extra
    LatencyDistribution distribution = LatencyDistribution::fixed;
    std::uint64_t seed = 0;
    std::vector<std::uint64_t> fail_runs;
    std::vector<std::uint64_t> hang_runs;
    double hang_seconds = 1e9;
    std::optional<std::uint64_t>
        refuse_allocation;  // this one, counted from 0 over all contexts, and all later
};

// Element k of output j is byte floor(k * N / M) of input 0, plus j, where N is the number of bytes
// of input 0 and M the number of elements of the output; integers wrap, bool takes the lowest bit.
// Throws Errc::config where the options make no sense.
[[nodiscard]] std::shared_ptr<Engine> open_simulated(SimulatedOptions options);

}  // namespace pipeline
