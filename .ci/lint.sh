# The checks of `./dev lint`, which sources this file: each says where and what to change.
# shellcheck shell=bash disable=SC2154 # root is set by dev

header_compiles_alone() {
  echo "#include \"$1\"" | c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ \
    -I . -isystem build/dev - || {
    echo "$1: does not compile alone: include what it uses"
    return 1
  }
}

# clang-tidy sees every source and, through HeaderFilterRegex, our headers. It gets the sources that
# include CAF first, since those take longest.
tidy_sources() {
  cpp_files 'actors/*.cpp' 'adapters/cli/*.cpp' 'tests/actors/*.cpp'
  cpp_files '*.cpp' | grep -vE '^(actors|adapters/cli|tests/(actors|fuzz|build))/'
}

run_lint() {
  local failures=0 cores
  cores=$(nproc)
  cd "$root" || return
  configure dev
  quietly ninja -C build/dev weir_generated
  export -f header_compiles_alone

  heading "house rules"
  python3 tests/build/tidy.py || failures=$((failures + 1))
  heading "formatting, by $(clang-format --version | grep -o 'version [0-9.]*')"
  cpp_files '*.hpp' '*.cpp' | xargs clang-format --dry-run --Werror || failures=$((failures + 1))
  heading "headers compile alone"
  # shellcheck disable=SC2016 # the inner shell expands it
  cpp_files '*.hpp' | xargs -P "$cores" -I{} bash -c 'header_compiles_alone "$1"' - {} ||
    failures=$((failures + 1))
  heading "clang-tidy"
  tidy_sources | xargs -P "$cores" -n 1 clang-tidy --quiet -p build/dev 2>/dev/null ||
    failures=$((failures + 1))
  heading "lint: $failures of 4 checks failed"
  return "$failures"
}
