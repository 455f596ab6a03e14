#!/usr/bin/env bash
# The quick check before a commit: source text, a build with warnings as errors, the unit tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh check
scripts/lint.sh
scripts/test.sh release -L unit
