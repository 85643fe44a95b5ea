// The options of engine "simulated".
#include <string>
#include <vector>

#include "engines/registry.hpp"
#include "engines/simulated/engine.hpp"

namespace pipeline::simulated {

std::shared_ptr<Engine> open(Options& options) {
    using Specs = std::vector<TensorSpec>;
    using Runs = std::vector<std::uint64_t>;
    using enum LatencyDistribution;
    SimulatedOptions read;
    read.inputs = options.require<Specs>("inputs");
    read.outputs = options.require<Specs>("outputs");
    read.contexts = options.take("contexts", read.contexts);
    read.cores = options.take("cores", read.cores);
    read.latency_us = options.take("latency_ms", 0.0) * 1e3;
    read.jitter_us = options.take("jitter_ms", 0.0) * 1e3;
    read.distribution =
        options
            .choose<LatencyDistribution>(
                "distribution",
                {{"fixed", fixed}, {"uniform", uniform}, {"normal", normal}, {"exponential", exponential}})
            .value_or(fixed);
    read.seed = options.take("seed", read.seed);
    read.fail_runs = options.take<Runs>("fail_runs", {});
    read.hang_runs = options.take<Runs>("hang_runs", {});
    read.hang_seconds = options.take("hang_seconds", read.hang_seconds);
    read.refuse_allocation = options.take<std::uint64_t>("refuse_allocation");
    options.finish();
    return open_simulated(std::move(read));
}

Devices find_devices(const std::string& /*library*/) { return {"", {{"simulated", "simulated NPU"}}}; }

}  // namespace pipeline::simulated
