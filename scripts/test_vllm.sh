#!/usr/bin/env bash
# Runs the connector's tests on vLLM for CPUs; the last line is `N passed, N failed`.
#
#   scripts/test_vllm.sh [VERSION] [PYTEST ARGUMENT]...
#
# INFERSCALE_LIBRARY names a libinferscale.so that is built already, as the command is then too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.26.0
if [[ "${1:-}" =~ ^[0-9]+\.[0-9]+ ]]; then version=$1 && shift; fi
scripts/setup.sh
scripts/setup_vllm.sh "$version"
eval "$(scripts/setup.sh env)"
eval "$(scripts/setup_vllm.sh env "$version")"

report=$PWD/build/reports/vllm-$version.xml
mkdir -p build/reports
rm -f "$report"
if [ -z "${INFERSCALE_LIBRARY:-}" ]; then
  if ! { cmake --preset release && cmake --build --preset release --target inferscale_c inferscale; } >build/reports/vllm.log 2>&1; then
    grep -E 'error|Error|FAILED' -A 5 build/reports/vllm.log | head -n 200
    echo "0 passed, 1 failed"
    exit 1
  fi
  export INFERSCALE_LIBRARY=$PWD/build/libinferscale.so
fi

# Threads that wait actively for one another crawl on a busy machine.
export OMP_WAIT_POLICY=passive VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=${VLLM_LOGGING_LEVEL:-WARNING}
export PYTHONPATH=$PWD/python:$PWD/tests/python:$PWD/tests/python/vllm HF_HUB_OFFLINE=1
# Starting an engine takes minutes on a busy machine.
test() { "$INFERSCALE_VLLM_PYTHON" -m pytest -q --timeout 1800 -p vllm_fixtures "$@" || true; }
reports=("$report")
if [ $# -gt 0 ]; then
  test tests/python/vllm --junitxml="$report" "$@"
else
  # vLLM keeps for the life of a process whether its core is in it.
  apart=(tests/python/vllm/test_vllm_{processes,gateway}.py)
  test tests/python/vllm "${apart[@]/#/--ignore=}" --junitxml="$report"
  reports+=("${report%.xml}-apart.xml")
  rm -f "${reports[1]}"
  test "${apart[@]}" --junitxml="${reports[1]}"
fi
exec "$INFERSCALE_PYTHON" scripts/tally.py "${reports[@]}"
