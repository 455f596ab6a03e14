#!/usr/bin/env bash
# Times InferScale in vLLM on a GPU beside vLLM without it, and writes the results.
#
#   bench/vllm/run.sh [--quick] [--out FOLDER] [--store FOLDER]
#
# Needs vLLM with CUDA (0.26.0 was measured) in a python3 (or $PYTHON), the CUDA plug-in
# (scripts/build_cuda.sh) and libinferscale.so (cmake --build --preset cuda --target inferscale_c). The model is random: its shape is
# llama-8b.json's, its tokenizer SmolLM2's. In the environment, all optional:
#
#   INFERSCALE_LIBRARY       libinferscale.so
#   INFERSCALE_CUDA_PLUGIN   libinferscale_cuda.so
#   INFERSCALE_BENCH_MODEL   a folder with a model's config and tokenizer instead
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
root=$(realpath "$here/../..")
python=${PYTHON:-python3}
out=$root/docs/benchmarks
store=$(mktemp -d)
quick=
while (($#)); do
  case $1 in
    --quick) quick=yes ;;
    --out) out=$2 && shift ;;
    --store) store=$2 && shift ;;
    --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit ;;
    *) echo "run.sh: what is $1?" >&2 && exit 2 ;;
  esac
  shift
done
export INFERSCALE_LIBRARY=${INFERSCALE_LIBRARY:-$root/build/cuda/libinferscale.so}
export INFERSCALE_CUDA_PLUGIN=${INFERSCALE_CUDA_PLUGIN:-$root/build/cuda/libinferscale_cuda.so}
export PYTHONPATH=$root/python:$here${PYTHONPATH:+:$PYTHONPATH}
export VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1

model=${INFERSCALE_BENCH_MODEL:-}
if [[ -z $model ]]; then
  model=$store/model
  mkdir -p "$model"
  cp "$here/llama-8b.json" "$model/config.json"
fi
json=$out/$(date +%F)-$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | sed 's/.* //' | tr 'A-Z' 'a-z')-vllm.json
mkdir -p "$out"
options=(--model "$model" --out "$json" --store "$store/kv" --plugin "$INFERSCALE_CUDA_PLUGIN")
if [[ -n $quick ]]; then
  options+=(--reps 5 --rounds 1 --sizes 1600 --users 10 --requests 20 --store-facts 2000 --rates 5 20 --seconds 3)
fi
bench() { "$python" "$here/bench_vllm.py" "$@" "${options[@]}"; }

bench latency throughput decode store --cudagraph FULL
bench decode-plain --cudagraph FULL
bench sweep host check --cudagraph FULL --sizes 1600
bench latency --sizes 1600
bench latency throughput --cudagraph FULL --kv-dtype fp8 --sizes 1600
"$python" "$here/vllm_report.py" "$json"
