#pragma once
// How tickets write numbers: least byte first, at full width, the same on every machine.

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

template <class Number>
void append_number(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes.push_back(static_cast<char>(number >> (8 * i) & 0xff));
  }
}

/// Takes the number off the front. The caller has checked that there are enough bytes.
template <class Number>
void take_number(std::string_view& bytes, Number& number) noexcept {
  number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number = static_cast<Number>(number | static_cast<Number>(static_cast<unsigned char>(bytes[i]))
                                              << (8 * i));
  }
  bytes.remove_prefix(sizeof number);
}

}  // namespace weir
