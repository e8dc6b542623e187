# The parts of `./dev test`, which sources this file. Every test is counted, and nothing is left out
# without a word: what could not be prepared counts as failed.
# shellcheck shell=bash disable=SC2154 # root and cache are set by dev

passed=0
failed=0
skipped=0
everything=.  # the regular expression; to ctest an empty one matches nothing
filter=$everything

# prepare COMMAND...: what must succeed before a part's tests can run; counted only if it fails.
prepare() {
  if ! "$@"; then
    failed=$((failed + 1))
    echo "FAILED  preparing: $*"
    return 1
  fi
}

# select_by_filter NAME...: those that FILTER matches.
select_by_filter() { printf '%s\n' "$@" | grep -E -- "$filter" || true; }

# run_ctest PRESET [COMMAND PREFIX...]: every ctest test is counted.
run_ctest() {
  local preset=$1 status=0 total bad idle
  local report=$root/build/$preset/ctest.xml log=$root/build/$preset/ctest.log
  rm -f "$report" "$log"
  env -C "$root" "${@:2}" ctest --preset "$preset" -j "$(nproc)" --quiet -R "$filter" \
    --output-junit "$report" --output-log "$log" || status=$?
  if [[ ! -f $report ]]; then
    failed=$((failed + 1))
    echo "FAILED  ctest wrote no report: see $log"
    return
  fi
  total=$(junit_count "$report" tests)
  bad=$(junit_count "$report" failures)
  idle=$(($(junit_count "$report" skipped) + $(junit_count "$report" disabled)))
  # A part without any test, or a ctest that failed for another reason, is a failure too.
  if [[ $bad -eq 0 && ($status -ne 0 || ($total -eq 0 && $filter == "$everything")) ]]; then
    bad=1 total=$((total + 1))
  fi
  if [[ $bad -gt 0 ]]; then
    grep -vE '^ *Start +[0-9]+:| Passed +[0-9.]+ sec$|^\[[A-Z_]+\]' "$log"
  fi
  if [[ $idle -gt 0 ]]; then grep -E 'Skipped|Not Run|Disabled' "$log"; fi
  passed=$((passed + total - bad - idle))
  failed=$((failed + bad))
  skipped=$((skipped + idle))
  echo "$preset: $((total - bad - idle)) passed, $bad failed, $idle skipped"
}

junit_count() { grep -om1 "[[:space:]]$2=\"[0-9]*\"" "$1" | tr -dc 0-9; }

test_under_asan() {
  heading "address and undefined-behaviour sanitizers, everything: building"
  prepare configure asan || return 0
  prepare quietly ninja -C "$root/build/asan" || return 0
  heading "address and undefined-behaviour sanitizers, everything: running"
  run_ctest asan
}

make_caf_for_tsan() { caf_root=$("$root/.ci/caf-tsan" "$cache"); }

test_under_tsan() {
  local caf_root='' fixed_addresses=()
  heading "thread sanitizer, what is threaded: CAF (minutes, unless an earlier run has built it)"
  prepare make_caf_for_tsan || return 0
  # GCC's thread sanitizer does not start under the most random of address layouts.
  if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
  heading "thread sanitizer, what is threaded: building"
  prepare configure tsan "-DCAF_ROOT=$caf_root" || return 0
  prepare quietly "${fixed_addresses[@]}" \
    ninja -C "$root/build/tsan" weir_tests || return 0
  heading "thread sanitizer, what is threaded: running"
  run_ctest tsan "${fixed_addresses[@]}"
}

# run_fuzzer NAME SECONDS: from the committed inputs; an input that crashes it is kept and shown.
run_fuzzer() {
  local name=$1 seconds=$2 scratch crashes=$root/build/fuzz/crashes/$1 status=0 crash
  scratch=$(mktemp -d)
  mkdir -p "$crashes" "$scratch/inputs"
  if [[ -d $root/tests/fuzz/corpus/${name%_fuzz} ]]; then
    cp -r "$root/tests/fuzz/corpus/${name%_fuzz}/." "$scratch/inputs"
  fi
  UBSAN_OPTIONS=print_stacktrace=1 "$root/build/fuzz/$name" "$scratch/inputs" \
    -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -artifact_prefix="$crashes/" \
    >"$scratch/log" 2>&1 || status=$?
  if [[ $status -eq 0 ]]; then
    tail -n 1 "$scratch/log"
  else
    tail -n 60 "$scratch/log"
    while read -r crash; do
      echo "$crash: once mended, keep it in tests/fuzz/corpus/${name%_fuzz}; it begins"
      od -A d -t x1z "$crash" | head -n 32
    done < <(sed -n 's/.*Test unit written to //p' "$scratch/log")
  fi
  rm -rf "$scratch"
  return "$status"
}

test_by_fuzzing() {
  local names=() name source
  for source in "$root"/tests/fuzz/*_fuzz.cpp; do
    if [[ -f $source ]]; then names+=("$(basename "$source" .cpp)"); fi
  done
  if [[ ${#names[@]} -gt 0 ]]; then mapfile -t names < <(select_by_filter "${names[@]}"); fi
  heading "fuzzers, one minute in all: ${#names[@]} to run"
  if [[ ${#names[@]} -eq 0 ]]; then return; fi
  prepare configure fuzz || return 0
  prepare quietly ninja -C "$root/build/fuzz" "${names[@]}" || return 0
  for name in "${names[@]}"; do
    if run_fuzzer "$name" $((60 / ${#names[@]})); then
      passed=$((passed + 1))
      echo "$name: passed"
    else
      failed=$((failed + 1))
      echo "$name: FAILED"
    fi
  done
}

make_python_environment() {
  local venv=$root/build/.venv requirements=$root/tests/python/requirements.txt
  if cmp -s "$requirements" "$venv/installed.txt"; then return; fi
  rm -rf "$venv"
  quietly python3 -m venv "$venv" &&
    quietly "$venv/bin/pip" install --cache-dir "$cache/pip" -r "$requirements" &&
    cp "$requirements" "$venv/installed.txt"
}

# run_python_test SCRIPT: counts what its last line, "N passed, M failed", says.
run_python_test() {
  local output status=0 start=$SECONDS good=0 bad=0
  output=$(env WEIR_BIN="$root/build/asan" UBSAN_OPTIONS=print_stacktrace=1 \
    "$root/build/.venv/bin/python" "$root/tests/$1" 2>&1) || status=$?
  if [[ ${output##*$'\n'} =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
  fi
  # A script that failed otherwise, or ran nothing, is one failure more.
  if [[ $bad -eq 0 && ($status -ne 0 || $good -eq 0) ]]; then bad=1; fi
  if [[ $bad -gt 0 ]]; then printf '%s\n' "$output"; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  echo "$1: $good passed, $bad failed ($((SECONDS - start)) s)"
}

# Real verbs, by the Soft-RoCE of a virtual machine's kernel. Its one name is rdma.
test_rdma() {
  local name=rdma log=$root/build/rdma.log start=$SECONDS status=0 good=0 bad=0 end
  if [[ -z $(select_by_filter "$name") ]]; then return; fi
  heading "RDMA under the sanitizers, in an emulated machine with Soft-RoCE"
  prepare setup_vm || return 0
  prepare configure asan || return 0
  prepare quietly ninja -C "$root/build/asan" weir_rdma_tests || return 0
  env UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=strict_string_checks=1 \
    "$root/tests/rdma/run_in_vm.sh" "$root/build/asan/weir_rdma_tests" >"$log" 2>&1 || status=$?
  if [[ $status -eq 126 && -z ${WEIR_SKIP_NOTHING:-} ]]; then
    grep 'NOT TO BE HAD' "$log"
    skipped=$((skipped + 1))
    echo "$name: SKIPPED, for the reason above"
    return
  fi
  # Catch2 ends with "All tests passed (9 assertions in 3 test cases)" or, after a failure, with
  # "test cases: 3 | 2 passed | 1 failed".
  end=$(grep -E '^(All tests passed|test cases:)' "$log" || true)
  good=$(grep -oE '[0-9]+ (test case|passed)' <<<"$end" | tr -dc 0-9 || true)
  bad=$(grep -oE '[0-9]+ failed' <<<"$end" | tr -dc 0-9 || true)
  good=${good:-0} bad=${bad:-0}
  if [[ $bad -eq 0 && ($status -ne 0 || $good -eq 0) ]]; then bad=1; fi
  if [[ $bad -gt 0 ]]; then cat "$log"; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  echo "$name: $good passed, $bad failed ($((SECONDS - start)) s)"
}

# The Python tests run programs of the asan build, in whose folder WEIR_BIN says they are.
test_with_python() {
  local scripts=() script
  for script in "$root"/tests/python/*_test.py; do
    if [[ -f $script ]]; then scripts+=("python/$(basename "$script")"); fi
  done
  if [[ ${#scripts[@]} -gt 0 ]]; then mapfile -t scripts < <(select_by_filter "${scripts[@]}"); fi
  heading "Python tests, against other people's programs: ${#scripts[@]} to run"
  if [[ ${#scripts[@]} -eq 0 ]]; then return; fi
  prepare make_python_environment || return 0
  for script in "${scripts[@]}"; do
    run_python_test "$script"
  done
}

# The protocol's model counts, in its last line, searches and planted faults alike. Its one name is
# model/lease_and_commit.
test_model() {
  local name=model/lease_and_commit log=$root/build/model.log start=$SECONDS good=0 bad=0
  if [[ -z $(select_by_filter "$name") ]]; then return; fi
  heading "model of leases and commits, searched by spin"
  prepare mkdir -p "$root/build" || return 0
  prepare quietly command -v spin || return 0
  "$root/tests/model/run.sh" 2>&1 | tee "$log" | sed '$d' || true
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
  fi
  if [[ $bad -eq 0 && $good -eq 0 ]]; then
    tail -n 1 "$log"
    bad=1
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  echo "$name: $good passed, $bad failed ($((SECONDS - start)) s)"
}

# run_tests FILTER: the last line counts everything; the status is 0 only if all passed.
run_tests() {
  filter=${1:-$everything}
  test_under_asan
  test_under_tsan
  test_rdma
  test_by_fuzzing
  test_with_python
  test_model
  heading "end"
  if [[ $((passed + failed)) -eq 0 ]]; then
    echo "no test matches $filter"
    failed=1
  fi
  if [[ $skipped -gt 0 ]]; then echo "$skipped skipped, named above"; fi
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
}
