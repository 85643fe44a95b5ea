// Engine "rknn": Rockchip NPUs (RK3588, RK3576, RK356x) through librknnrt.so, opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine.hpp"

namespace pipeline {

enum class RknnMode {
    zero_copy,  // the NPU reads and writes the slots' own memory
    general,    // the runtime copies between its memory and the slots'
};

// How the memory of several slots reaches a runtime context, in zero-copy mode.
enum class RknnBinding {
    context_per_slot,  // each slot has a duplicate of the context, bound once, as the vendor documents
    rebind,            // rknn_set_io_mem before each run that needs it; tried out at the start
    automatic,         // rebind where the runtime honours it, else context_per_slot
};

enum class RknnPriority { high, medium, low };

struct RknnOptions {
    std::string library;                  // path or name of librknnrt.so
    std::string model;                    // .rknn file
    std::optional<std::size_t> contexts;  // none: one for each core
    std::vector<unsigned> cores;          // those to use, from 0; empty: all
    RknnMode mode = RknnMode::zero_copy;
    RknnBinding binding = RknnBinding::context_per_slot;
    RknnPriority priority = RknnPriority::high;
    // Let the runtime raise the whole process to nice -19, as it does when it may and is not told otherwise.
    bool raise_priority = false;
    // Take each image input (rank 4; 1, 3 or 4 channels) as u8 NHWC; the NPU normalises.
    bool image_input = true;
    // Hand out quantised outputs as f32.
    bool dequantize = true;
    // Flush caches with rknn_mem_sync instead of leaving it to rknn_run.
    bool explicit_sync = false;
    // Of the first input, in NHWC or NCHW order; one that the model was converted for.
    std::optional<std::vector<std::int64_t>> input_shape;
};

// Throws Errc::not_installed (library), model (file, chip, version, tensors), device (NPU, cores) or
// config (an option that is wrong or does not fit the model).
[[nodiscard]] std::shared_ptr<Engine> open_rknn(const RknnOptions& options);

// Whether `library` opens and is a librknnrt. Throws Errc::not_installed when not.
void check_rknn_library(const std::string& library);

}  // namespace pipeline
