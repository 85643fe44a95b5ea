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

    // A image whose channels lie 16 apart, seen as NCHW; the engine wants a larger block.
    TensorSpec apart{"i", DType::i8, {1, 2, 3, 4}, "NCHW", 0, {}, {192, 1, 64, 16}, 256};
    CHECK(apart.byte_size() == 24 && apart.driver_size() == 256);
    apart.block_bytes = 0;
    CHECK(apart.driver_size() == 178);
    apart.validate();
    std::size_t runs = 0;
    pipeline::for_each_run(apart, [&](std::size_t driver, std::size_t packed, std::size_t bytes) {
        CHECK(bytes == 1 && packed == runs);
        CHECK(driver == packed / 12 + packed % 12 / 4 * 64 + packed % 4 * 16);
        ++runs;
    });
    CHECK(runs == 24);
    runs = 0;
    pipeline::for_each_run(padded, [&](std::size_t driver, std::size_t packed, std::size_t bytes) {
        CHECK(bytes == 15 && driver == runs * 16 && packed == runs * 15);
        ++runs;
    });
    CHECK(runs == 6);
    apart.explicit_strides = {192, 1, 64};
    CHECK_THROWS(apart.validate(), Errc::config, "3 strides for 4 dimensions");
    apart.explicit_strides = {192, 1, 64, 0};
    CHECK_THROWS(apart.validate(), Errc::config);
    apart.explicit_strides = {192, 1, 64, 1};  // channels lie on the rows' values
    CHECK_THROWS(apart.validate(), Errc::config, "overlap");
    apart.explicit_strides = {192, 1, std::int64_t{1} << 62, 64};
    CHECK_THROWS(apart.validate(), Errc::config, "address space");
    CHECK_THROWS(
        (TensorSpec{"w", DType::u8, {1, 8, 2, 3}, "NHWC", (std::size_t{1} << 61) + 8, {}}.validate()),
        Errc::config, "address space");

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
