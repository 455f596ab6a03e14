#!/usr/bin/env bash
# Compiles the CUDA plug-in, for one GPU architecture (the first argument, 90a unless given). Needs nvcc, no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
eval "$(scripts/setup.sh env)"
cmake --preset cuda -DINFERSCALE_CUDA_ARCHITECTURES="${1:-90a}" >/dev/null
cmake --build --preset cuda --target inferscale_cuda
