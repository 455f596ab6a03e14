#!/usr/bin/env bash
# Checks the source text. Without an argument: `format` and `python`, which take seconds.
#
#   scripts/lint.sh format    clang-format over all C++ files
#   scripts/lint.sh python    ruff and mypy over all Python files
#   scripts/lint.sh tidy      clang-tidy over src/; takes minutes where a file is not as it was when it was clean
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
eval "$(scripts/setup.sh env)"

check_format() {
  git ls-files -z '*.cc' '*.h' '*.cuh' '*.cu' | xargs -0 -r clang-format-14 --dry-run -Werror
}

check_python() {
  local tools
  tools=$(dirname "$INFERSCALE_PYTHON")
  local files
  mapfile -t files < <(git ls-files '*.py')
  "$tools/ruff" check --quiet "${files[@]}"
  "$tools/ruff" format --check --quiet "${files[@]}"
  "$tools/mypy" --python-executable "$INFERSCALE_PYTHON" "${files[@]}"
}

check_tidy() {
  cmake --preset tidy >/dev/null
  "$INFERSCALE_PYTHON" scripts/tidy.py build/tidy
}

for check in "${@:-format python}"; do
  for name in $check; do
    "check_$name"
  done
done
