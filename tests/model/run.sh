#!/usr/bin/env bash
# Searches the model exhaustively, then shows for each planted fault that the search finds it.
# With --long it searches further, for minutes. The last line is "N passed, M failed". Needs spin
# and gcc; takes one core and 2 GiB.
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$folder/lease_and_commit.pml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

pair="-DREPLICAS=1 -DSHARDS=2"
single="-DREPLICAS=1 -DSHARDS=1"
relay="-DREPLICAS=2 -DSHARDS=1"

# build NAME "MODEL OPTIONS" "COMPILER OPTIONS": makes the checker NAME/pan.
build() {
  mkdir -p "$scratch/$1"
  cd "$scratch/$1"
  # shellcheck disable=SC2086 # options are words
  spin -a -o3 $2 "$model" >spin.log 2>&1 || { cat spin.log; return 1; }
  # shellcheck disable=SC2086
  gcc -w -DVECTORSZ=1024 -DMEMLIM=1900 $3 -o pan pan.c
}

# search NAME "MODEL OPTIONS": nothing may be wrong, and nothing may be left out of the search.
search() {
  local name=$1 options=$2 compile="-O1 -DSAFETY ${3:-}"
  local arguments=(-m100000) start=$SECONDS
  if [[ $options == *PROGRESS* ]]; then
    compile="-O1 -DNFAIR=3 -DCOLLAPSE"
    arguments+=(-a -f)
  fi
  if build "$name" "$options" "$compile" && ./pan "${arguments[@]}" >log 2>&1 &&
    grep -q 'errors: 0' log && ! grep -qE 'depth too small|not completed' log; then
    note_reached
    passed=$((passed + 1))
    echo "$name: $(awk '/states, stored/ { print $1; exit }' log) states ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    echo "$name: FAILED, with spin -a $options"
    cat log 2>/dev/null || true
  fi
}

# fault NAME "MODEL OPTIONS": the search must end at a claim that does not hold.
fault() {
  local name=$1 options="$2 -DFAULT=$1" violated
  build "fault-$name" "$options" "-O0 -DSAFETY" && ./pan -m100000 >log 2>&1 || true
  violated=$(sed -n 's/^pan:1: //p' log 2>/dev/null | head -n 1)
  if [[ $violated == "assertion violated"* ]]; then
    passed=$((passed + 1))
    echo "fault $name: found after $(awk '/states, stored/ { print $1; exit }' log) states"
  else
    failed=$((failed + 1))
    echo "fault $name: NOT FOUND, with spin -a $options"
  fi
}

# Lines of the model of which this search has reached a statement, and all lines that have one. A
# line is expanded wherever it is used; one expansion that is reached is enough.
note_reached() {
  ./pan -d | sed -n 's/.*\.pml:\([0-9]*\) =>.*/\1/p' | sort -n | uniq -c >lines
  sed -n 's/.*\.pml:\([0-9]*\), state.*/\1/p' log | sort -n | uniq -c >unreached
  awk 'FILENAME == "unreached" { unreached[$2] = $1; next }
       { print $2 > "all"; if ($1 > unreached[$2]) print $2 }' unreached lines >reached
}

# A line that no search has reached stands for a step that the model never takes.
check_reached() {
  local never
  # Complaints, and what only planted faults do.
  local unreachable='assert|complain|FAULT|whole = t_has|newest = whole|staging = 0'
  never=$(comm -23 <(sort -u "$scratch"/search-*/all) <(sort -u "$scratch"/search-*/reached) |
    sort -n | while read -r line; do
    sed -n "${line}{s/^ */$line: /;p}" "$model"
  done | grep -vE "$unreachable" || true)
  if [[ -z $never ]]; then
    passed=$((passed + 1))
    echo "every step of the model was taken"
  else
    failed=$((failed + 1))
    echo "never taken:"
    echo "$never"
  fi
}

small="-DVERSIONS=2 -DCRASHES=1 -DSTRIKES=0"
search search-crash "$pair $small"
search search-crash-in-place "$pair $small -DIN_PLACE"
search search-strike "$pair -DVERSIONS=3 -DCRASHES=0 -DSTRIKES=1"
search search-strike-in-place "$pair -DVERSIONS=2 -DCRASHES=0 -DSTRIKES=1 -DIN_PLACE"
search search-relay "$relay -DVERSIONS=3 -DCRASHES=0 -DSTRIKES=0"
search search-relay-lost "$relay $small -DROLLOUT_CRASHES"
early="-DVERSIONS=2 -DCRASHES=0 -DSTRIKES=1 -DEARLY"
search search-early-crash "$single $small -DEARLY"
search search-early-relay "$relay $early"
search progress "$pair -DVERSIONS=2 -DCRASHES=0 -DSTRIKES=0 -DPROGRESS"
search progress-after-crash "$single $small -DPROGRESS"
if [[ ${1:-} == --long ]]; then
  search search-early-crash-three-versions "$single -DVERSIONS=3 -DCRASHES=1 -DSTRIKES=0 -DEARLY"
  search search-early-pair "$pair -DVERSIONS=3 -DCRASHES=0 -DSTRIKES=1 -DEARLY"
  search search-two-crashes "$single -DVERSIONS=2 -DCRASHES=2 -DSTRIKES=0"
  search search-relay-crash "$relay $small" -DCOLLAPSE
  search search-relay-crash-in-place "$relay $small -DIN_PLACE" -DCOLLAPSE
  search search-crash-and-strike "$pair -DVERSIONS=2 -DCRASHES=1 -DSTRIKES=1" -DCOLLAPSE
  search search-two-crashes-three-versions "$single -DVERSIONS=3 -DCRASHES=2 -DSTRIKES=0" -DCOLLAPSE
fi
check_reached
for name in NO_CONFIRM OVERWRITE_AT_ONCE RESUME_EARLY TRUST_OLD_LEASE READY_EARLY FORGET_TERM \
  FORGET_EPOCH FORGET_READERS ANY_INCARNATION RESUME_MIXED FORGET_ACQUIRES ANSWERS_OF_DEAD; do
  fault "$name" "$pair $small"
done
for name in FORGET_VOID PAUSE_LATE; do fault "$name" "$pair $small -DIN_PLACE"; done
lagging="-DVERSIONS=4 -DCRASHES=1 -DSTRIKES=0 -DIN_PLACE -DEXCHANGE_CRASHES -DLAGGING"
fault FORGET_FLOOR "$relay $lagging"
fault COMMIT_ANY_TERM "$relay $small"
fault READ_AHEAD "$single $early"
fault READ_TWICE "$relay -DVERSIONS=3 -DCRASHES=0 -DSTRIKES=0"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
