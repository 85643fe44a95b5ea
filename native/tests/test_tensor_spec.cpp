#include "check.hpp"
#include "core/error.hpp"
#include "core/tensor_spec.hpp"

using namespace pipeline;

int main() {
    const TensorSpec dense{"a", DType::f32, {1, 3, 4, 5}, "NCHW", 0, {}};
    CHECK(dense.byte_size() == 240 && dense.driver_size() == 240);
    CHECK((dense.strides() == std::vector<std::int64_t>{240, 80, 20, 4}));
    dense.validate();

    const TensorSpec padded{"b", DType::u8, {2, 3, 5, 3}, "NHWC", 16, {}};
    CHECK(padded.byte_size() == 90);
    CHECK(padded.driver_size() == 96);
    CHECK((padded.strides() == std::vector<std::int64_t>{48, 16, 3, 1}));
    padded.validate();

    const TensorSpec scalar{"c", DType::i64, {}, "", 0, {}};
    CHECK(scalar.byte_size() == 8 && scalar.strides().empty());
    scalar.validate();

    CHECK_THROWS((TensorSpec{"d", DType::u8, {1, 0}, "", 0, {}}.validate()), Errc::config);
    CHECK_THROWS((TensorSpec{"e", DType::u8, {1, -1}, "", 0, {}}.validate()), Errc::config);
    CHECK_THROWS((TensorSpec{"f", DType::u8, {1, 4, 5, 3}, "NHWC", 14, {}}.validate()), Errc::config);
    CHECK_THROWS((TensorSpec{"g", DType::u8, {1, 4}, "", 16, {}}.validate()), Errc::config);
    CHECK_THROWS((TensorSpec{"h", DType::f64, {1LL << 31, 1LL << 31, 4}, "", 0, {}}.validate()),
                 Errc::config);
}
