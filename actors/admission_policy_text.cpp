// The options of admission policies as text, and their bounds: one table serves both.

#include <charconv>
#include <cmath>
#include <optional>

#include "actors/admission_policy.hpp"

namespace weir {
namespace {

/// Counts of samples. Products of two, and of one with the bounds below, fit 64 bits.
constexpr std::uint64_t count_max = std::uint64_t{1} << 30;
/// Steps and versions. NeMo's in_order looks at each step of its window.
constexpr std::uint64_t steps_max = 1024;
constexpr double staleness_max = 1000;

struct Number {
  std::uint64_t* value;
  std::uint64_t least;
  std::uint64_t most;
};

struct Fraction {
  double* value;
  double most;
};

/// One of several names; the value is the name's place.
struct Choice {
  std::vector<std::string_view> names;
  std::size_t chosen;
  void (*choose)(PolicyOptions& options, std::size_t index);
};

struct Field {
  std::string_view key;
  std::variant<Number, Fraction, Choice> value;
};

using Fields = std::vector<Field>;

Fields fields(ArealOptions& it) {
  return {{"eta", Number{&it.eta, 0, count_max}},
          {"batch", Number{&it.batch, 1, count_max}},
          {"max_concurrent", Number{&it.max_concurrent, 0, count_max}}};
}

Fields fields(VerlOptions& it) {
  return {{"batch", Number{&it.batch, 1, count_max}},
          {"staleness", Fraction{&it.staleness, staleness_max}},
          {"sync_steps", Number{&it.sync_steps, 1, steps_max}}};
}

Fields fields(VerlSpanOptions& it) {
  return {{"batch", Number{&it.batch, 1, count_max}},
          {"groups", Number{&it.groups, 1, count_max}},
          {"threshold", Number{&it.threshold, 1, count_max}},
          {"old", Choice{{"drop", "wait"},
                         static_cast<std::size_t>(it.old),
                         [](PolicyOptions& options, std::size_t index) {
                           std::get<VerlSpanOptions>(options).old = static_cast<OldGroups>(index);
                         }}}};
}

Fields fields(NemoOptions& it) {
  return {{"batch", Number{&it.batch, 1, count_max}},
          {"window", Number{&it.window, 0, steps_max}},
          {"sampler", Choice{{"in_order", "weight_fifo", "ready_first", "windowed"},
                             static_cast<std::size_t>(it.sampler),
                             [](PolicyOptions& options, std::size_t index) {
                               std::get<NemoOptions>(options).sampler =
                                   static_cast<NemoSampler>(index);
                             }}}};
}

Fields fields(PrimeOptions& it) {
  return {{"max_concurrent", Number{&it.max_concurrent, 1, count_max}},
          {"max_lag", Number{&it.max_lag, 0, count_max}},
          {"max_off_policy", Number{&it.max_off_policy, 0, count_max}}};
}

Fields fields(PipelineOptions& it) {
  return {{"batch", Number{&it.batch, 1, count_max}},
          {"attempts", Number{&it.attempts, 1, count_max}},
          {"max_lag", Number{&it.max_lag, 0, count_max}}};
}

Fields fields(SemaphoreOptions& it) {
  return {{"size", Number{&it.size, 1, count_max}},
          {"until", Choice{{"taken", "finished"},
                           static_cast<std::size_t>(it.until),
                           [](PolicyOptions& options, std::size_t index) {
                             std::get<SemaphoreOptions>(options).until =
                                 static_cast<PermitUntil>(index);
                           }}}};
}

Fields fields(PolicyOptions& options) {
  return std::visit([](auto& it) { return fields(it); }, options);
}

constexpr std::string_view names[] = {"areal", "verl",     "verl_span", "nemo",
                                      "prime", "pipeline", "semaphore"};
static_assert(std::size(names) == std::variant_size_v<PolicyOptions>);

template <std::size_t... index>
PolicyOptions options_at(std::size_t wanted, std::index_sequence<index...> /*all*/) {
  PolicyOptions options;
  ((index == wanted ? static_cast<void>(options.emplace<index>()) : void()), ...);
  return options;
}

std::optional<PolicyOptions> options_named(std::string_view name) {
  if (name == "pacing") name = "areal";
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (names[i] == name) {
      return options_at(i, std::make_index_sequence<std::variant_size_v<PolicyOptions>>());
    }
  }
  return std::nullopt;
}

/// "a, b or c".
template <class Names>
std::string listed(const Names& all) {
  std::string text;
  for (std::size_t i = 0; i < std::size(all); ++i) {
    if (i > 0) text += i + 1 == std::size(all) ? " or " : ", ";
    text += all[i];
  }
  return text;
}

tl::unexpected<Error> bad(std::string_view key, std::string_view value, const std::string& advice) {
  return failure(ErrorCode::invalid,
                 "admission: " + std::string(key) + "=" + std::string(value) + ": " + advice);
}

std::string advice(const Number& number) {
  return "give a whole number from " + std::to_string(number.least) + " to " +
         std::to_string(number.most);
}

std::string advice(const Fraction& fraction) {
  return "give a number from 0 to " + std::to_string(static_cast<std::uint64_t>(fraction.most));
}

/// The shortest text that is read back as the same number.
std::string text_of(double number) {
  char buffer[32];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), number);
  return {buffer, end.ptr};
}

/// All of `text` and nothing else.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, trouble] = std::from_chars(text.data(), end, number);
  if (trouble != std::errc() || stop != end) return std::nullopt;
  return number;
}

Result<void> assign(PolicyOptions& options, const Field& field, std::string_view text) {
  if (const auto* whole = std::get_if<Number>(&field.value)) {
    const auto number = number_in<std::uint64_t>(text);
    if (!number) return bad(field.key, text, advice(*whole));
    *whole->value = *number;
  } else if (const auto* fraction = std::get_if<Fraction>(&field.value)) {
    const auto number = number_in<double>(text);
    if (!number) return bad(field.key, text, advice(*fraction));
    *fraction->value = *number;
  } else {
    const auto& choice = std::get<Choice>(field.value);
    std::size_t index = 0;
    while (index < choice.names.size() && choice.names[index] != text) ++index;
    if (index == choice.names.size()) return bad(field.key, text, "give " + listed(choice.names));
    choice.choose(options, index);
  }
  return {};
}

/// One "key=value".
Result<void> apply(PolicyOptions& options, std::string_view item, std::string& seen) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos) {
    return failure(ErrorCode::invalid, "admission: '" + std::string(item) +
                                           "' is no option: write name:key=value,key=value");
  }
  const std::string_view key = item.substr(0, equals);
  std::vector<std::string_view> keys;
  for (const Field& field : fields(options)) {
    keys.push_back(field.key);
    if (field.key != key) continue;
    const std::string mark = "," + std::string(key) + ",";
    if (seen.find(mark) != std::string::npos) {
      return failure(ErrorCode::invalid,
                     "admission: " + std::string(key) + " is given twice: leave one out");
    }
    seen += mark;
    return assign(options, field, item.substr(equals + 1));
  }
  return failure(ErrorCode::invalid, "admission: " + std::string(names[options.index()]) +
                                         " has no option '" + std::string(key) + "': it has " +
                                         listed(keys));
}

}  // namespace

Result<void> check(const PolicyOptions& options) {
  PolicyOptions copy = options;
  for (const Field& field : fields(copy)) {
    if (const auto* whole = std::get_if<Number>(&field.value)) {
      if (*whole->value < whole->least || *whole->value > whole->most) {
        return bad(field.key, std::to_string(*whole->value), advice(*whole));
      }
    } else if (const auto* fraction = std::get_if<Fraction>(&field.value)) {
      if (!(*fraction->value >= 0 && *fraction->value <= fraction->most)) {
        return bad(field.key, text_of(*fraction->value), advice(*fraction));
      }
    } else {
      const auto& choice = std::get<Choice>(field.value);
      if (choice.chosen >= choice.names.size()) {
        return bad(field.key, std::to_string(choice.chosen), "give " + listed(choice.names));
      }
    }
  }
  const auto* span = std::get_if<VerlSpanOptions>(&options);
  if (span != nullptr && span->groups < span->batch) {
    return bad("groups", std::to_string(span->groups),
               "no batch of " + std::to_string(span->batch) + " could ever be complete: raise it");
  }
  return {};
}

Result<PolicyOptions> parse_policy(std::string_view text) {
  const std::size_t colon = text.find(':');
  auto options = options_named(text.substr(0, colon));
  if (!options) {
    return failure(ErrorCode::invalid, "admission: no policy is called '" +
                                           std::string(text.substr(0, colon)) + "': write " +
                                           listed(names) + ", as in areal:eta=2,batch=4");
  }
  std::string seen;
  for (std::size_t end = colon; end != std::string_view::npos;) {
    const std::size_t start = end + 1;
    end = text.find(',', start);
    const auto length = end == std::string_view::npos ? end : end - start;
    if (auto done = apply(*options, text.substr(start, length), seen); !done) return failure(done);
  }
  if (auto sound = check(*options); !sound) return failure(sound);
  return *options;
}

std::string text_of(const PolicyOptions& options) {
  PolicyOptions copy = options;
  std::string text(names[options.index()]);
  char separator = ':';
  for (const Field& field : fields(copy)) {
    text += separator;
    text.append(field.key).append("=");
    if (const auto* whole = std::get_if<Number>(&field.value)) {
      text += std::to_string(*whole->value);
    } else if (const auto* fraction = std::get_if<Fraction>(&field.value)) {
      text += text_of(*fraction->value);
    } else {
      const auto& choice = std::get<Choice>(field.value);
      text += choice.names.at(choice.chosen);
    }
    separator = ',';
  }
  return text;
}

}  // namespace weir
