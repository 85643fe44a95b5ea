// The stand-in's network, exact on every machine: its definition is README.md's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace standin {

// A tensor's memory as the device sees it.
struct Bound {
    std::uint8_t* data = nullptr;
    Layout layout;
};

// Half away from zero.
[[nodiscard]] double rounded(double value) noexcept;
[[nodiscard]] std::uint16_t to_half(float value) noexcept;
[[nodiscard]] float from_half(std::uint16_t bits) noexcept;

// The quantum of an input's real value, before its zero point is taken off.
[[nodiscard]] std::int32_t quantise_input(const Tensor& tensor, std::size_t channel, double value) noexcept;

// One context's working memory, kept from run to run.
class Network {
public:
    void run(const Model& model, std::size_t shape, const std::vector<Bound>& inputs,
             const std::vector<Bound>& outputs);

private:
    struct Plane {
        std::size_t h = 0;
        std::size_t w = 0;
        std::vector<std::int64_t> sums;  // [n][channels of all inputs][h][w]
    };

    void load(const Tensor& tensor, const Bound& bound, std::size_t slot);
    void pool(const Model& model, std::size_t shape, Plane& plane);
    void apply(const Model& model, std::size_t index, std::size_t shape, const Plane& plane,
               const Bound& bound);

    std::vector<std::vector<std::int16_t>> values_;  // of each input, [n][c][h][w]
    std::vector<std::int64_t> row_;
};

// For rknn_inputs_set: a tensor in logical order and of any type, to the native memory.
void store_input(const Tensor& tensor, std::size_t shape, const void* from, std::int32_t fmt,
                 std::int32_t type, const Bound& to);
// For rknn_outputs_get: native memory to the logical order, as floats or as it is.
void fetch_output(const Tensor& tensor, const Bound& from, bool want_float, void* to);

}  // namespace standin
