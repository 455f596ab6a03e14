#!/usr/bin/env bash
# Sets up, builds and runs the tests; the last line is `N passed, N failed` over all runners.
#
#   scripts/test.sh                             all tests, C++ and Python, of the release build
#   scripts/test.sh PRESET [CTEST ARGUMENT]...  the C++ tests of a preset, e.g. `scripts/test.sh tsan -L threads`,
#                                               which builds the tests of that label only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -eq 0 ]; then scripts/setup.sh test; else scripts/setup.sh; fi
eval "$(scripts/setup.sh env)"

preset=${1:-release}
cpp_report=$PWD/build/reports/$preset.xml
python_report=$PWD/build/reports/python.xml
mkdir -p build/reports
rm -f "$cpp_report" "$python_report"

target=all
[ "${2:-}" = -L ] && target=tests-$3
if ! { cmake --preset "$preset" && cmake --build --preset "$preset" --target "$target"; } >"build/reports/$preset.log" 2>&1; then
  grep -E 'error|Error|FAILED' -A 5 "build/reports/$preset.log" | head -n 200
  echo "The build failed; all of its output is in build/reports/$preset.log"
  echo "0 passed, 1 failed"
  exit 1
fi

# A kernel that spreads addresses widely leaves ThreadSanitizer no room; this turns that off where it may.
steady=(setarch "$(uname -m)" --addr-no-randomize)
"${steady[@]}" true 2>/dev/null || steady=()

reports=("$cpp_report")
"${steady[@]}" ctest --preset "$preset" --parallel "$(nproc)" --output-junit "$cpp_report" "${@:2}" || true
if [ $# -eq 0 ]; then
  # Those of the vLLM connector are scripts/test_vllm.sh's.
  "$INFERSCALE_PYTHON" -m pytest -q tests/python --ignore=tests/python/vllm --junitxml="$python_report" || true
  reports+=("$python_report")
fi
exec "$INFERSCALE_PYTHON" scripts/tally.py "${reports[@]}"
