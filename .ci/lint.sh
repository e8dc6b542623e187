# The checks of `./dev lint`, which sources this file: each says where and what to change.
# shellcheck shell=bash disable=SC2154 # root is set by dev

# The name that the build defines for a test stands for a path.
header_compiles_alone() {
  echo "#include \"$1\"" | c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ \
    -I . -isystem build/dev -D WEIR_PROGRAM='""' - || {
    echo "$1: does not compile alone: include what it uses"
    return 1
  }
}

# Headers without a source of the same name. One that has it is included by it first, which is a
# house rule, so whoever compiles that source has checked the header.
headers_without_source() {
  local header
  cpp_files '*.hpp' | while read -r header; do
    if [[ ! -f ${header%.hpp}.cpp ]]; then echo "$header"; fi
  done
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
  headers_without_source | xargs -P "$cores" -I{} bash -c 'header_compiles_alone "$1"' - {} ||
    failures=$((failures + 1))
  heading "clang-tidy"
  # It reads the options for GCC, to which -Wconversion does not mean the sign.
  local as_gcc_warns=(--extra-arg=-Wno-sign-conversion --extra-arg=-Wno-unknown-warning-option)
  tidy_sources | xargs -P "$cores" -n 1 clang-tidy --quiet -p build/dev "${as_gcc_warns[@]}" 2>&1 |
    sed -E '/^[0-9]+ warnings? (generated|treated)/d' || failures=$((failures + 1))
  heading "lint: $failures of 4 checks failed"
  return "$failures"
}
