#!/usr/bin/env bash
# Builds the CUDA plug-in, checks it, times its ops beside the peers and writes the results:
# <date>-<card>-ops.json, .md and .svg.
#
#   bench/gpu/run.sh [--quick] [--no-peers] [--out FOLDER] [OPTION OF bench_ops.py ...]
#
# Needs an NVIDIA GPU and a python3 (or $PYTHON) with torch for CUDA and matplotlib; for building
# also nvcc and what scripts/setup.sh installs. Peers are built where bench/gpu/fetch_peers.sh has
# put their sources. In the environment, all optional:
#
#   INFERSCALE_CUDA_PLUGIN   a built libinferscale_cuda.so: nothing of ours is compiled
#   INFERSCALE_OPS_TEST      a built inferscale-ops-test
#   INFERSCALE_PEERS         sources of the peers, default ~/.cache/inferscale/peers
#   INFERSCALE_PEERS_BUILT   where their libraries are, or are put; default build/peers
set -euo pipefail
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
here=$root/bench/gpu
python=${PYTHON:-python3}
out=$root/docs/benchmarks
peers=yes
options=()
while (($#)); do
  case $1 in
    --out) out=$2 && shift ;;
    --no-peers) peers=no ;;
    --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit ;;
    *) options+=("$1") ;;
  esac
  shift
done

if ! "$python" -c 'import matplotlib, torch; assert torch.cuda.is_available()' 2>/dev/null; then
  echo "run.sh: $python has no torch that sees a GPU, or no matplotlib" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv

plugin=${INFERSCALE_CUDA_PLUGIN:-}
ops_test=${INFERSCALE_OPS_TEST:-}
if [[ -z $plugin ]]; then
  (
    cd "$root"
    eval "$(scripts/setup.sh env)"
    cmake --preset cuda >/dev/null
    cmake --build --preset cuda --target inferscale_cuda
    cmake --build --preset cuda --target inferscale-ops-test || true  # said below
  )
  plugin=$(find "$root/build/cuda" -name libinferscale_cuda.so -print -quit)
  ops_test=$(find "$root/build/cuda" -name inferscale-ops-test -type f -print -quit)
fi

status=0
if [[ -n $ops_test && -x $ops_test ]]; then
  INFERSCALE_CUDA_PLUGIN=$plugin "$ops_test" || status=$?
else
  echo "inferscale-ops-test is not built: its checks are left out, those of bench_ops.py are not"
fi

built=${INFERSCALE_PEERS_BUILT:-$root/build/peers}
if [[ $peers == yes ]]; then
  sources=${INFERSCALE_PEERS:-${INFERSCALE_CACHE:-$HOME/.cache/inferscale}/peers}
  mkdir -p "$sources"
  PYTHON=$python "$here/build_peers.sh" "$sources" "$built"
  options+=(--peers "$built")
fi

PYTHONUNBUFFERED=1 "$python" "$here/bench_ops.py" --plugin "$plugin" --out "$out" "${options[@]}" ||
  status=$?
exit "$status"
