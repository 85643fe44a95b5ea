#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

struct Bench {
    std::shared_ptr<Executor> executor = test::executor();
    std::shared_ptr<Ring> ring = Ring::create(executor, 2, true);
    std::shared_ptr<Allocator> inputs = executor->allocator(0, Direction::input, 0);
    std::shared_ptr<Allocator> outputs = executor->allocator(0, Direction::output, 0);

    SlotId run(SlotId id, std::vector<UserArray> in, std::vector<UserArray> out,
               std::vector<Route> expected) {
        CHECK(ring->submit(id, in, out) == expected);
        const auto done = test::wait_completions(*ring);
        CHECK(done.size() == 1 && !done[0].error);
        ring->lease(id);
        return id;
    }
};

float first(const std::byte* data) {
    float value = 0;
    std::memcpy(&value, data, sizeof value);
    return value;
}

void memory_of_the_same_allocator_is_bound() {
    Bench bench;
    BlockRef in = bench.inputs->lease(test::input_bytes);
    BlockRef out = bench.outputs->lease(test::output_bytes);
    std::memset(in.block().base, 42, test::input_bytes);
    const SlotId id = test::acquire(*bench.ring);
    bench.run(id, {{0, in.block().base, test::input_bytes}}, {{0, out.block().base, test::output_bytes}},
              {Route::bound, Route::bound});
    CHECK(first(out.block().base) == 42.0F);
    CHECK_THROWS(static_cast<void>(bench.ring->view(id, Direction::output, 0)), Errc::binding);
    bench.ring->release(id);
    // Undone: the next run goes to the slot again; below, only our references are left.
    std::memset(out.block().base, 0, test::output_bytes);
    const SlotId next = test::acquire(*bench.ring);
    bench.run(next, {}, {}, {Route::slot, Route::slot});
    CHECK(first(out.block().base) == 0.0F);
    bench.ring->release(next);
    const std::byte* const bases[] = {in.block().base, out.block().base};
    in.reset();
    out.reset();
    CHECK(!bench.inputs->find(bases[0]) && !bench.outputs->find(bases[1]));
}

void foreign_memory_is_copied() {
    Bench bench;
    std::vector<std::byte> in(test::input_bytes, std::byte{17});
    std::vector<std::byte> out(test::output_bytes + 8, std::byte{0xEE});
    const SlotId id = test::acquire(*bench.ring);
    bench.run(id, {{0, in.data(), in.size()}}, {{0, out.data(), out.size()}}, {Route::copied, Route::copied});
    bench.ring->copy_output(id, {0, out.data(), out.size()});
    CHECK(first(out.data()) == 17.0F);
    CHECK(out[test::output_bytes] == std::byte{0xEE});  // not a byte more than the tensor has
    bench.ring->release(id);

    // A piece inside a block is not the block.
    BlockRef block = bench.inputs->lease(test::input_bytes + 8);
    std::memset(block.block().base, 18, test::input_bytes + 8);
    const SlotId inside = test::acquire(*bench.ring);
    bench.run(inside, {{0, block.block().base + 8, test::input_bytes}}, {}, {Route::copied, Route::slot});
    CHECK(first(bench.ring->view(inside, Direction::output, 0)->data()) == 18.0F);
    bench.ring->release(inside);

    // Nor is another tensor's memory.
    BlockRef other = bench.outputs->lease(test::input_bytes);
    std::memset(other.block().base, 19, test::input_bytes);
    const SlotId foreign = test::acquire(*bench.ring);
    bench.run(foreign, {{0, other.block().base, test::input_bytes}}, {}, {Route::copied, Route::slot});
    CHECK(first(bench.ring->view(foreign, Direction::output, 0)->data()) == 19.0F);
    bench.ring->release(foreign);
}

void sizes_are_checked_before_anything_runs() {
    Bench bench;
    std::vector<std::byte> in(test::input_bytes);
    std::vector<std::byte> out(test::output_bytes - 1);
    const SlotId id = test::acquire(*bench.ring);
    const auto refused = [&](std::vector<UserArray> i, std::vector<UserArray> o, const std::string& place) {
        std::string text;
        try {
            bench.ring->submit(id, i, o);
        } catch (const Error& error) {
            CHECK(error.code() == Errc::binding);
            text = error.what();
        }
        CHECK(text.find(place) != std::string::npos);
        CHECK(bench.ring->info(id).state == SlotState::filling);  // nothing happened
    };
    refused({}, {{0, out.data(), out.size()}}, "output 0 'scores': 40 bytes needed, 39 given");
    refused({{0, in.data(), 47}}, {}, "input 0 'image': 48 bytes needed, 47 given");
    refused({{0, in.data(), 49}}, {}, "input 0 'image': 48 bytes needed, 49 given");
    refused({{1, in.data(), 48}}, {}, "input 1: the model has 1");
    refused({{0, nullptr, 48}}, {}, "no data");
    refused({{0, in.data(), 48}, {0, in.data(), 48}}, {}, "given twice");
    CHECK(bench.ring->drain().empty());
    bench.run(id, {}, {}, {Route::slot, Route::slot});
}

void padded_rows_are_copied_row_by_row() {
    auto options = test::options();
    options.inputs[0].row_stride = 16;  // rows of 12 bytes
    const auto executor = test::executor(options);
    const auto ring = Ring::create(executor, 1, true);
    std::vector<std::byte> in(test::input_bytes);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i);
    const SlotId id = test::acquire(*ring);
    const UserArray array{0, in.data(), in.size()};
    ring->submit(id, {&array, 1}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->lease(id);
    const auto view = ring->view(id, Direction::output, 0);
    for (std::size_t k = 0; k < 10; ++k) {
        CHECK(first(view->data() + 4 * k) == static_cast<float>(k * 48 / 10));
    }
}

}  // namespace

int main() {
    memory_of_the_same_allocator_is_bound();
    foreign_memory_is_copied();
    sizes_are_checked_before_anything_runs();
    padded_rows_are_copied_row_by_row();
}
