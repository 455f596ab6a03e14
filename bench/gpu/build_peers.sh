#!/usr/bin/env bash
# Compiles the libraries that bench_ops.py compares with, as far as their sources are there.
#
#   bench/gpu/build_peers.sh SOURCES OUT
#
# SOURCES is a folder of fetch_peers.sh. OUT gets libpeer_lmcache.so and libpeer_flashinfer.so; one
# that is there already is kept. Needs nvcc, and for LMCache the torch that python3 (or $PYTHON)
# imports, or $TORCH_DIR. PEER_ARCH: what to compile for, `native` unless given.
set -euo pipefail
sources=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shims=$(realpath "$(dirname "${BASH_SOURCE[0]}")")/shims
arch=${PEER_ARCH:-native}

compile() {
  nvcc -std=c++20 -O3 -arch="$arch" --expt-relaxed-constexpr -Xcompiler -fPIC -w "$@"
}

build_flashinfer() {
  compile -shared -I"$sources/flashinfer/include" "$shims/flashinfer.cu" -o "$1"
}

build_lmcache() {
  local torch=${TORCH_DIR:-} csrc=$sources/lmcache/csrc work pids=() pid
  [[ -n $torch ]] || torch=$("${PYTHON:-python3}" -c 'import torch; print(torch.__path__[0])')
  work=$(mktemp -d)
  local flags=(-I"$shims/include" -I"$csrc" -I"$csrc/cuda" -I"$torch/include"
    -I"$torch/include/torch/csrc/api/include")
  for file in "$csrc/cuda/mem_kernels.cu" "$csrc/cuda/pos_kernels.cu" "$shims/lmcache.cu"; do
    compile "${flags[@]}" -c "$file" -o "$work/$(basename "$file" .cu).o" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || return 1; done
  compile -shared "$work"/*.o -cudart shared -L"$torch/lib" -ltorch_cpu -ltorch_cuda -lc10 \
    -lc10_cuda -o "$1" || return 1
  rm -rf "$work"
}

# A peer that does not build costs its rows, not the benchmark.
attempt() {
  local library=$out/libpeer_$1.so
  if [[ -f $library ]]; then
    echo "$1: $library is there"
  elif [[ ! -d $sources/$1 ]]; then
    echo "$1: no sources in $sources, left out"
  elif "build_$1" "$library.part"; then
    mv "$library.part" "$library"
    echo "$1: built in ${SECONDS} s"
  else
    echo "$1: does not build here, left out" >&2
  fi
}

attempt flashinfer &
attempt lmcache &
wait
