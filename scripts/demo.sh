#!/usr/bin/env bash
# Runs the demo of what was built: scripts/demo.sh [options of inferscale demo]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
eval "$("$root/scripts/setup.sh" env)"
binary=${INFERSCALE_BIN:-$root/build/inferscale}
if [ ! -x "$binary" ]; then
  echo "demo: $binary is missing: run make build" >&2
  exit 1
fi
exec "$binary" demo --sample "$root/examples/sample" "$@"
