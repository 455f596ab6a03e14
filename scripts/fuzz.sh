#!/usr/bin/env bash
# Fuzzes: builds preset `fuzz` and runs each target for a time, two at once. Last line: `N passed, N failed`.
#
#   scripts/fuzz.sh SECONDS [TARGET]...     all targets if none is named
#
# Inputs that a run finds interesting are kept under build/fuzz/corpus; an input that crashes is saved under
# build/fuzz/crashes, and `build/fuzz/bin/TARGET FILE` runs it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
eval "$(scripts/setup.sh env)"
seconds=${1:?how many seconds for each target?}
shift

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(find build/fuzz/bin -type f -name 'fuzz_*' -printf '%f\n' | sort)

# Runs one target and leaves its name in a file that tells how it went.
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
fuzz_one() {
  local target=$1 found=build/fuzz/corpus/$1 crashes=build/fuzz/crashes/$1
  mkdir -p "$found" "$crashes"
  if build/fuzz/bin/"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$crashes/" "$found" fuzz/corpus/"$target" \
    >"build/fuzz/$target.log" 2>&1; then
    touch "$results/$target.passed"
    echo "passed $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log") inputs"
  else
    touch "$results/$target.failed"
    echo "FAILED $target:"
    tail -n 40 "build/fuzz/$target.log"
  fi
}
export -f fuzz_one
export results seconds
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'fuzz_one "$1"' _ {}

passed=$(find "$results" -name '*.passed' | wc -l)
failed=$((${#targets[@]} - passed))
echo "$passed passed, $failed failed"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
