// The least program that uses an installed Weir: it compiles with its headers and links with it.
#include <iostream>

#include "runtime/element_type.hpp"

int main() {
  std::cout << weir::name_of(weir::ElementType::bf16) << '\n';
}
