#!/usr/bin/env bash
# Gets the sources of the libraries that bench_ops.py compares with, at the versions that shims/
# was written for. Both are under Apache-2.0; none of their files enters this repository.
#
#   bench/gpu/fetch_peers.sh [FOLDER]     default: ~/.cache/inferscale/peers, or $INFERSCALE_CACHE/peers
set -euo pipefail

readonly LMCACHE=v0.5.6 FLASHINFER=v0.6.17
folder=${1:-${INFERSCALE_CACHE:-$HOME/.cache/inferscale}/peers}

# fetch <name> <repository> <tag> <path>...: those paths, and the licence, as <folder>/<name>.
fetch() {
  local name=$1 repository=$2 tag=$3
  shift 3
  if [[ -f $folder/$name/VERSION && $(<"$folder/$name/VERSION") == "$tag" ]]; then
    echo "$name $tag is there"
    return
  fi
  local clone
  clone=$(mktemp -d)
  git clone --quiet --depth 1 --filter=blob:none --sparse --branch "$tag" \
    -c advice.detachedHead=false "https://github.com/$repository" "$clone"
  git -C "$clone" sparse-checkout set --no-cone /LICENSE "$@"
  rm -rf "${folder:?}/$name"
  mkdir -p "$folder/$name"
  (cd "$clone" && tar cf - LICENSE "${@#/}") | tar xf - -C "$folder/$name"
  echo "$tag" >"$folder/$name/VERSION"
  rm -rf "$clone"
  echo "$name $tag: $folder/$name"
}

fetch lmcache LMCache/LMCache "$LMCACHE" /csrc/engine_kv_format.h /csrc/kv_transfer_types.h \
  /csrc/cuda/{mem_kernels.cu,mem_kernels.cuh,pos_kernels.cu,pos_kernels.cuh,dispatch_utils.h,cuda_compat.h}
fetch flashinfer flashinfer-ai/flashinfer "$FLASHINFER" /include/flashinfer
