#!/usr/bin/env bash
# Does the library export just what the header declares?   check_exports.sh HEADER LIBRARY
set -euo pipefail
declared=$(grep -oE '\binferscale_[a-z_]+\(' "$1" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$2" | awk '{print $3}' | sort -u)
[ -n "$declared" ]
diff <(echo "$declared") <(echo "$exported") && echo "$(echo "$exported" | wc -l) functions"
