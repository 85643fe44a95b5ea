#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "engines/image_input.hpp"
#include "engines/registry.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

void a_folder_is_an_engine() {
    const auto engine = open_engine("made_up", {{"gain", std::int64_t{3}}});
    const auto executor =
        std::make_shared<Executor>(engine, Allocator::Limits{1 << 20, std::chrono::seconds(20)});
    const auto ring = Ring::create(executor, 2, false);
    const SlotId id = test::acquire(*ring);
    *ring->view(id, Direction::input, 0)->data() = std::byte{7};
    ring->submit(id, {}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->lease(id);
    float value = 0;
    std::memcpy(&value, ring->view(id, Direction::output, 0)->data(), sizeof value);
    CHECK(value == 21.0F);
    ring->close();
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(list_devices("made_up", "none").version == "none");
}

void names_and_options_are_checked() {
    CHECK_THROWS(open_engine("made", {}), Errc::config,
                 "engine: 'made' is not one of made_up, mindspore_lite");
    CHECK_THROWS(open_engine("made_up", {{"gian", 1.0}, {"gain", 2.0}}), Errc::config,
                 "gian: the engine has no such option");
    CHECK_THROWS(open_engine("made_up", {{"gain", std::string("much")}}), Errc::config,
                 "gain: needs a number");
    // What is nothing is not given.
    CHECK(open_engine("made_up", {{"gian", Option()}, {"gain", Option()}})->name() == "made_up");
}

void values_are_read_as_what_they_must_be() {
    Options options({{"small", std::int64_t{-1}},
                     {"flag", std::int64_t{1}},
                     {"list", OptionList{std::int64_t{1}, std::int64_t{300}}},
                     {"texts", OptionMap{{"b", std::string("2")}, {"a", std::string("1")}}},
                     {"word", std::string("fast")}});
    CHECK_THROWS(options.take<std::uint64_t>("small"), Errc::config, "small: needs a whole number from 0 to");
    CHECK_THROWS(options.take<bool>("flag"), Errc::config, "flag: needs true or false");
    CHECK_THROWS(options.take<std::vector<std::uint8_t>>("list"), Errc::config,
                 "list.1: needs a whole number");
    using Texts = std::vector<std::pair<std::string, std::string>>;
    CHECK(options.take<Texts>("texts", {}) == (Texts{{"a", "1"}, {"b", "2"}}));
    CHECK_THROWS(options.choose<int>("word", {{"slow", 0}, {"quick", 1}}), Errc::config,
                 "word: 'fast' is not one of slow, quick");
    CHECK_THROWS(options.require<std::string>("model"), Errc::config, "model: missing, but it is needed");
    options.finish();  // each was read
}

void the_image_option_is_read_whole() {
    Options none({{"image", Option()}});
    CHECK(!take_image(none));
    Options given(
        {{"image", OptionMap{{"color", std::string("rgb")}, {"mean", OptionList{std::int64_t{127}}}}}});
    const auto image = take_image(given);
    CHECK(image && image->swap_rb && image->mean == std::vector<float>{127.0F} && image->scale.empty());
    Options wrong({{"image", OptionMap{{"colour", std::string("rgb")}}}});
    CHECK_THROWS(take_image(wrong), Errc::config, "image.colour: the engine has no such option");
}

}  // namespace

int main() {
    a_folder_is_an_engine();
    names_and_options_are_checked();
    values_are_read_as_what_they_must_be();
    the_image_option_is_read_whole();
}
