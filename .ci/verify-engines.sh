# The parts of `./dev verify-engines`, which sources this file: the golden files of tests/engines
# are dumped again from the engines and compared. What can't be installed here is skipped, loudly.
# shellcheck shell=bash disable=SC2154 # root and cache are set by dev

passed=0
failed=0
skipped=0
folder=$root/tests/engines

# requirements_of ENVIRONMENT: all that decides what is in it.
requirements_of() {
  local list
  for list in "$folder/requirements-$1.txt" "$folder/requirements-$1-bare.txt"; do
    if [[ -f $list ]]; then cat "$list"; fi
  done
}

# make_engine_environment ENVIRONMENT: a Python environment in the cache, kept while its
# requirements stay. A requirement of the "bare" list comes without those of its own, and if it is
# built, then with what is there already. The variables mean something to vLLM only.
make_engine_environment() {
  local venv=$cache/engines/$1 bare=$folder/requirements-$1-bare.txt
  local pip=("$venv/bin/pip" install --cache-dir "$cache/pip")
  if cmp -s <(requirements_of "$1") "$venv/installed.txt"; then return; fi
  rm -rf "$venv"
  mkdir -p "$cache/engines"
  python3 -m venv "$venv" &&
    "${pip[@]}" -r "$folder/requirements-$1.txt" &&
    if [[ -f $bare ]]; then
      VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$(sed -n 's/^vllm==//p' "$bare") \
        "${pip[@]}" --no-deps --no-build-isolation -r "$bare"
    fi &&
    requirements_of "$1" >"$venv/installed.txt"
}

# count_cases ENGINE [WHY SKIPPED]: compares, prints a line for each case, and counts.
count_cases() {
  local output counts
  output=$(python3 "$folder/compare.py" "$scratch/$1" "$folder/golden/$1" "${@:2}")
  sed '$d' <<<"$output"
  read -ra counts < <(tail -n 1 <<<"$output")
  passed=$((passed + counts[0]))
  failed=$((failed + counts[1]))
  skipped=$((skipped + counts[2]))
}

# verify_engine ENVIRONMENT ENGINE: dumps again all that the engine's script dumps.
verify_engine() {
  local log=$scratch/$2.log script=${2%_v4}
  heading "$2: dumping"
  # One script serves two versions of Transformers, and knows by which it is run.
  if ! "$cache/engines/$1/bin/python" "$folder/${script}_dump.py" "$scratch" \
    >"$log" 2>&1; then
    grep -E ': FAILED$' "$log" || tail -n 20 "$log"
    failed=$((failed + 1))
    cp "$log" "$root/build/verify-$2.log" && echo "$2: see build/verify-$2.log"
  fi
  count_cases "$2"
}

# verify_with ENVIRONMENT ENGINE...
verify_with() {
  local engine log=$scratch/$1.log
  heading "environment $1: installing, unless an earlier run has"
  if make_engine_environment "$1" >"$log" 2>&1; then
    for engine in "${@:2}"; do verify_engine "$1" "$engine"; done
  else
    tail -n 5 "$log"
    for engine in "${@:2}"; do
      count_cases "$engine" "environment $1 could not be installed, as told above"
    done
  fi
}

# run_verify_engines [FOLDER]: dumps stay in FOLDER, from where they can become golden files.
run_verify_engines() {
  mkdir -p "$root/build"
  if [[ $# -gt 0 ]]; then
    mkdir -p "$1"
    scratch=$(cd "$1" && pwd)
  else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
  fi
  verify_with trainers megatron fsdp2 transformers
  verify_with bridge megatron_bridge fsdp2_v4 transformers_v4
  verify_with vllm vllm conversions
  verify_with sglang sglang
  heading "end"
  if [[ $skipped -gt 0 ]]; then
    echo "$skipped SKIPPED, named above: nothing was shown about them"
  fi
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
}
