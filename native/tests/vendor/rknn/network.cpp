#include "network.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace standin {

namespace {

namespace type = rknn::tensor_type;
namespace format = rknn::tensor_format;

template <class T>
T read(const std::uint8_t* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
void write(std::uint8_t* at, T value) noexcept {
    std::memcpy(at, &value, sizeof value);
}

double read_real(const std::uint8_t* at, std::int32_t element) noexcept {
    switch (element) {
        case type::int8:
            return read<std::int8_t>(at);
        case type::uint8:
            return read<std::uint8_t>(at);
        case type::float16:
            return static_cast<double>(from_half(read<std::uint16_t>(at)));
        default:
            return static_cast<double>(read<float>(at));
    }
}

std::int32_t clamped(double value, std::int32_t element) noexcept {
    double low = std::numeric_limits<std::int16_t>::min();
    double high = std::numeric_limits<std::int16_t>::max();
    if (element == type::int8) {
        low = -128.0;
        high = 127.0;
    } else if (element == type::uint8) {
        low = 0.0;
        high = 255.0;
    }
    return static_cast<std::int32_t>(value < low ? low : std::min(value, high));
}

bool quantised(const Tensor& tensor) noexcept { return tensor.qnt != rknn::quantisation::none; }

std::int32_t zero_point(const Tensor& tensor) noexcept {
    return tensor.qnt == rknn::quantisation::affine ? tensor.zp : 0;
}

// Whether elements of this type are the tensor's own quanta rather than real values.
bool raw(const Tensor& tensor, std::int32_t element) noexcept {
    return element == tensor.type && quantised(tensor);
}

// The network's integer for one element that a caller gave.
std::int32_t quantum(const Tensor& tensor, std::size_t channel, const std::uint8_t* at,
                     std::int32_t element) noexcept {
    if (raw(tensor, element)) {
        return static_cast<std::int32_t>(read_real(at, element)) - zero_point(tensor);
    }
    if (element == tensor.type) {  // a float model's own input, already normalised
        return clamped(rounded(read_real(at, element) / tensor.step()), element);
    }
    return quantise_input(tensor, channel, read_real(at, element)) - zero_point(tensor);
}

// One output element of the real value `sum * mult`.
void store_result(const Tensor& tensor, double value, std::uint8_t* at, std::int32_t element) noexcept {
    float real = static_cast<float>(value);
    if (quantised(tensor)) {
        const auto q = clamped(rounded(value / tensor.step()) + zero_point(tensor), tensor.type);
        if (element == tensor.type) {
            *at = static_cast<std::uint8_t>(q);
            return;
        }
        real = static_cast<float>(q - zero_point(tensor)) * static_cast<float>(tensor.step());
    }
    if (element == type::float16) {
        write(at, to_half(real));
    } else if (element == type::float32) {
        write(at, tensor.type == type::float16 ? from_half(to_half(real)) : real);
    }
}

}  // namespace

double rounded(double value) noexcept {
    if (!(std::abs(value) < 4503599627370496.0)) return value;  // whole already, or not a number
    return static_cast<double>(static_cast<std::int64_t>(value + std::copysign(0.5, value)));
}

std::uint16_t to_half(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
    std::uint32_t result = 0;
    if (magnitude < 0x38800000U) {
        // Too small for a normal half: count of 2^-24, to the even one from the middle.
        const float count = std::bit_cast<float>(magnitude) * 16777216.0F;
        result = static_cast<std::uint32_t>(std::nearbyint(count));
    } else {
        result = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    }
    return static_cast<std::uint16_t>(sign | result);
}

float from_half(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) {
        return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
    }
    if (magnitude < 0x400U) {
        const float value = static_cast<float>(magnitude) / 16777216.0F;
        return sign != 0 ? -value : value;
    }
    return std::bit_cast<float>(sign | ((magnitude << 13U) + 0x38000000U));
}

std::int32_t quantise_input(const Tensor& tensor, std::size_t channel, double value) noexcept {
    double normal = (value - tensor.mean[channel]) / tensor.std[channel];
    if (!quantised(tensor)) {
        const auto real = static_cast<float>(normal);
        normal = static_cast<double>(tensor.type == type::float16 ? from_half(to_half(real)) : real);
    }
    return clamped(rounded(normal / tensor.step()) + zero_point(tensor), tensor.type);
}

void Network::load(const Tensor& tensor, const Bound& bound, std::size_t slot) {
    const auto& layout = bound.layout;
    const auto& e = layout.extent;
    const std::size_t bytes = element_size(layout.type);
    auto& values = values_[slot];
    values.resize(e.elements());
    std::array<std::int16_t, 256> table{};
    std::int16_t* to = values.data();
    for (std::size_t n = 0; n < e.n; ++n) {
        for (std::size_t c = 0; c < e.c; ++c) {
            for (unsigned v = 0; bytes == 1 && v < table.size(); ++v) {
                const std::array<std::uint8_t, sizeof(float)> element{static_cast<std::uint8_t>(v)};
                table[v] = static_cast<std::int16_t>(quantum(tensor, c, element.data(), layout.type));
            }
            for (std::size_t h = 0; h < e.h; ++h) {
                const std::uint8_t* at = bound.data + layout.row(n, c, h) * bytes;
                const std::size_t step = layout.step() * bytes;
                if (bytes == 1) {
                    for (std::size_t w = 0; w < e.w; ++w, at += step) *to++ = table[*at];
                } else {
                    for (std::size_t w = 0; w < e.w; ++w, at += step) {
                        *to++ = static_cast<std::int16_t>(quantum(tensor, c, at, layout.type));
                    }
                }
            }
        }
    }
}

// Sums of each window; one value for each channel counts in every window as it is.
void Network::pool(const Model& model, std::size_t shape, Plane& plane) {
    plane.sums.clear();
    const std::size_t images = model.inputs.front().extent(shape).n;
    for (std::size_t n = 0; n < images; ++n) {
        for (std::size_t i = 0; i < model.inputs.size(); ++i) {
            const auto e = model.inputs[i].extent(shape);
            const std::size_t sy = std::max<std::size_t>(e.h / plane.h, 1);
            const std::size_t sx = std::max<std::size_t>(e.w / plane.w, 1);
            for (std::size_t c = 0; c < e.c; ++c) {
                const std::int16_t* from = values_[i].data() + (n * e.c + c) * e.h * e.w;
                for (std::size_t y = 0; y < plane.h; ++y) {
                    row_.assign(e.w, 0);
                    for (std::size_t k = 0; k < sy; ++k) {
                        const std::int16_t* line = from + std::min(y * sy + k, e.h - 1) * e.w;
                        for (std::size_t x = 0; x < e.w; ++x) row_[x] += line[x];
                    }
                    for (std::size_t x = 0; x < plane.w; ++x) {
                        std::int64_t sum = 0;
                        for (std::size_t k = 0; k < sx; ++k) sum += row_[std::min(x * sx + k, e.w - 1)];
                        plane.sums.push_back(sum);
                    }
                }
            }
        }
    }
}

void Network::apply(const Model& model, std::size_t index, std::size_t shape, const Plane& plane,
                    const Bound& bound) {
    const auto& tensor = model.outputs[index];
    const auto& weights = model.weights[index];
    const auto e = tensor.extent(shape);
    const std::size_t channels = weights.factors.size() / e.c;
    const std::size_t bytes = element_size(bound.layout.type);
    for (std::size_t n = 0; n < e.n; ++n) {
        for (std::size_t c = 0; c < e.c; ++c) {
            for (std::size_t h = 0; h < e.h; ++h) {
                row_.assign(e.w, weights.bias[c]);
                for (std::size_t k = 0; k < channels; ++k) {
                    const std::int64_t factor = weights.factors[c * channels + k];
                    const std::int64_t* sums = plane.sums.data() + ((n * channels + k) * e.h + h) * e.w;
                    for (std::size_t w = 0; w < e.w; ++w) row_[w] += factor * sums[w];
                }
                std::uint8_t* at = bound.data + bound.layout.row(n, c, h) * bytes;
                for (std::size_t w = 0; w < e.w; ++w, at += bound.layout.step() * bytes) {
                    store_result(tensor, static_cast<double>(row_[w]) * tensor.mult, at, bound.layout.type);
                }
            }
        }
    }
}

void Network::run(const Model& model, std::size_t shape, const std::vector<Bound>& inputs,
                  const std::vector<Bound>& outputs) {
    values_.resize(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) load(model.inputs[i], inputs[i], i);
    std::vector<Plane> planes;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto e = model.outputs[i].extent(shape);
        auto found = std::find_if(planes.begin(), planes.end(),
                                  [&](const Plane& p) { return p.h == e.h && p.w == e.w; });
        if (found == planes.end()) {
            found = planes.insert(planes.end(), Plane{e.h, e.w, {}});
            pool(model, shape, *found);
        }
        apply(model, i, shape, *found, outputs[i]);
    }
}

void store_input(const Tensor& tensor, std::size_t shape, const void* from, std::int32_t fmt,
                 std::int32_t element, const Bound& to) {
    Layout source = tensor.layout(shape, fmt, element);
    source.columns = source.extent.w;  // the caller's has no padding
    const auto& e = source.extent;
    const auto* data = static_cast<const std::uint8_t*>(from);
    const std::size_t bytes = element_size(element);
    const std::size_t native = element_size(to.layout.type);
    for (std::size_t n = 0; n < e.n; ++n) {
        for (std::size_t c = 0; c < e.c; ++c) {
            for (std::size_t i = 0; i < e.h * e.w; ++i) {
                const std::size_t h = i / e.w;
                const std::size_t w = i % e.w;
                const double value =
                    read_real(data + (source.row(n, c, h) + w * source.step()) * bytes, element);
                std::uint8_t* at = to.data + (to.layout.row(n, c, h) + w * to.layout.step()) * native;
                if (native == 1) {
                    *at = static_cast<std::uint8_t>(quantise_input(tensor, c, value));
                    continue;
                }
                const auto real = static_cast<float>((value - tensor.mean[c]) / tensor.std[c]);
                to.layout.type == type::float16 ? write(at, to_half(real)) : write(at, real);
            }
        }
    }
}

void fetch_output(const Tensor& tensor, const Bound& from, bool want_float, void* to) {
    const auto& e = from.layout.extent;
    const std::size_t bytes = element_size(from.layout.type);
    auto* out = static_cast<std::uint8_t*>(to);
    const bool table = want_float && bytes == 1;
    std::array<float, 256> reals{};
    for (unsigned v = 0; table && v < reals.size(); ++v) {
        const std::array<std::uint8_t, sizeof(float)> element{static_cast<std::uint8_t>(v)};
        const auto q = static_cast<std::int32_t>(read_real(element.data(), from.layout.type));
        reals[v] = static_cast<float>(q - zero_point(tensor)) * static_cast<float>(tensor.step());
    }
    for (std::size_t n = 0; n < e.n; ++n) {
        for (std::size_t c = 0; c < e.c; ++c) {
            for (std::size_t h = 0; h < e.h; ++h) {
                const std::uint8_t* at = from.data + from.layout.row(n, c, h) * bytes;
                for (std::size_t w = 0; w < e.w; ++w, at += from.layout.step() * bytes) {
                    if (!want_float) {
                        std::memcpy(out, at, bytes);
                        out += bytes;
                        continue;
                    }
                    write(out, table ? reals[*at] : static_cast<float>(read_real(at, from.layout.type)));
                    out += sizeof(float);
                }
            }
        }
    }
}

}  // namespace standin
