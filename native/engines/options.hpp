// Options of an engine by name, as they come from Python: read once each, what is left is refused.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "core/tensor_spec.hpp"

namespace pipeline {

struct Option;
using OptionList = std::vector<Option>;
using OptionMap = std::map<std::string, Option>;

// Nothing stands for an option that is not given.
struct Option : std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorSpec, OptionList,
                             OptionMap> {
    using variant::variant;
};

// Each call of `take` and `choose` reads one option. Throws Errc::config naming the option.
class Options {
public:
    // `place` stands before the names in errors.
    explicit Options(OptionMap given, std::string place = "")
        : given_(std::move(given)), place_(std::move(place)) {}

    template <class T>
    [[nodiscard]] std::optional<T> take(const std::string& name) {
        const auto found = given_.extract(name);
        if (found.empty() || std::holds_alternative<std::monostate>(found.mapped())) return std::nullopt;
        return Reader<T>::read(place_ + name, found.mapped());
    }
    template <class T>
    [[nodiscard]] T take(const std::string& name, T fallback) {
        return take<T>(name).value_or(std::move(fallback));
    }
    // One that must be given.
    template <class T>
    [[nodiscard]] T require(const std::string& name) {
        auto found = take<T>(name);
        if (!found) throw Error(Errc::config, "missing, but it is needed", place_ + name);
        return std::move(*found);
    }
    // The value that belongs to a word.
    template <class T>
    [[nodiscard]] std::optional<T> choose(const std::string& name,
                                          const std::vector<std::pair<std::string, T>>& known) {
        const auto word = take<std::string>(name);
        if (!word) return std::nullopt;
        std::string words;
        for (const auto& [each, value] : known) {
            if (each == *word) return value;
            words += (words.empty() ? "" : ", ") + each;
        }
        throw Error(Errc::config, "'" + *word + "' is not one of " + words, place_ + name);
    }
    // Throws Errc::config naming an option that nobody read.
    void finish() const;

private:
    [[noreturn]] static void refuse(const std::string& place, std::string_view needed);

    template <class T>
    struct Reader {
        static T read(const std::string& place, const Option& option) {
            if constexpr (std::integral<T> && !std::same_as<T, bool>) {
                const auto* value = std::get_if<std::int64_t>(&option);
                if (value == nullptr || !std::in_range<T>(*value)) {
                    refuse(place, "a whole number from " + std::to_string(std::numeric_limits<T>::min()) +
                                      " to " + std::to_string(std::numeric_limits<T>::max()));
                }
                return static_cast<T>(*value);
            } else if constexpr (std::floating_point<T>) {
                if (const auto* whole = std::get_if<std::int64_t>(&option)) return static_cast<T>(*whole);
                if (const auto* value = std::get_if<double>(&option)) return static_cast<T>(*value);
                refuse(place, "a number");
            } else {
                if (const auto* value = std::get_if<T>(&option)) return *value;
                if constexpr (std::same_as<T, bool>) refuse(place, "true or false");
                if constexpr (std::same_as<T, std::string>) refuse(place, "text");
                refuse(place, "another kind of value");
            }
        }
    };
    template <class T>
    struct Reader<std::vector<T>> {
        static std::vector<T> read(const std::string& place, const Option& option) {
            const auto* list = std::get_if<OptionList>(&option);
            if (list == nullptr) refuse(place, "a list");
            std::vector<T> result;
            for (std::size_t i = 0; i < list->size(); ++i) {
                result.push_back(Reader<T>::read(place + "." + std::to_string(i), (*list)[i]));
            }
            return result;
        }
    };
    // Names and values in the order of the names.
    template <class T>
    struct Reader<std::vector<std::pair<std::string, T>>> {
        static std::vector<std::pair<std::string, T>> read(const std::string& place, const Option& option) {
            const auto* map = std::get_if<OptionMap>(&option);
            if (map == nullptr) refuse(place, "a mapping");
            std::vector<std::pair<std::string, T>> result;
            for (const auto& [name, value] : *map) {
                result.emplace_back(name, Reader<T>::read(place + "." + name, value));
            }
            return result;
        }
    };

    OptionMap given_;
    std::string place_;
};

}  // namespace pipeline
