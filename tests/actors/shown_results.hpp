#pragma once
// A failed check on a `Result` shows its error's text.

#include <catch2/catch_tostring.hpp>
#include <string>

#include "runtime/result.hpp"

namespace Catch {

template <>
struct StringMaker<weir::Error> {
  static std::string convert(const weir::Error& error) {
    return "error " + std::to_string(static_cast<int>(error.code)) + ": " + error.text;
  }
};

template <class T>
struct StringMaker<tl::expected<T, weir::Error>> {
  static std::string convert(const tl::expected<T, weir::Error>& result) {
    return result ? "success" : StringMaker<weir::Error>::convert(result.error());
  }
};

}  // namespace Catch
