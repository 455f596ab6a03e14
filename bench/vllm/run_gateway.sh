#!/usr/bin/env bash
# From the question to the first token: starts vLLM with the connector and `inferscale serve` before it,
# remembers a long conversation, and asks (gateway.py).
#
#   bench/vllm/run_gateway.sh --model FOLDER --out FILE.json [--turns N] [--work FOLDER] [-- VLLM'S OPTIONS]
#
# Options after -- go to vLLM, those in $GATEWAY_OPTIONS to gateway.py. In the environment: INFERSCALE (the
# command), INFERSCALE_EMBED_MODEL, and what run.sh needs. Both servers listen on this machine only.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
python=${PYTHON:-python3}
inferscale=${INFERSCALE:-$here/../../build/inferscale}
turns=2500
work=$(mktemp -d)
while (($#)); do
  case $1 in
    --model) model=$2 && shift ;;
    --out) out=$2 && shift ;;
    --turns) turns=$2 && shift ;;
    --work) work=$2 && shift ;;
    --) shift && break ;;
    *) echo "run_gateway.sh: what is $1?" >&2 && exit 2 ;;
  esac
  shift
done
vllm_port=8091 port=8092
export PYTHONPATH=$here/../../python:$here${PYTHONPATH:+:$PYTHONPATH}
export INFERSCALE_DATA_DIR=$work/data INFERSCALE_URL=http://127.0.0.1:$vllm_port
mkdir -p "$INFERSCALE_DATA_DIR/kv"
stop() {
  kill "${servers[@]}" 2>/dev/null || true
  wait "${servers[@]}" 2>/dev/null || true
}
servers=()
trap stop EXIT

settings=$(printf '{"dir": "%s", "device_bytes": %d, "host_bytes": %d, "capture_bytes": %d}' "$INFERSCALE_DATA_DIR/kv" \
  "${DEVICE_BYTES:-17179869184}" "${HOST_BYTES:-8589934592}" "${CAPTURE_BYTES:-2147483648}")
"$python" -m vllm.entrypoints.openai.api_server --model "$model" --port $vllm_port --host 127.0.0.1 \
  --enable-prompt-tokens-details --kv-transfer-config "{\"kv_connector\": \"InferScaleConnector\", \"kv_role\": \"kv_both\",
    \"kv_connector_module_path\": \"inferscale.vllm.connector\", \"kv_connector_extra_config\": $settings}" "$@" \
  >"$work/vllm.log" 2>&1 &
servers+=($!)
until curl -sf "$INFERSCALE_URL/health" >/dev/null; do
  kill -0 "${servers[0]}" 2>/dev/null || { tail -n 40 "$work/vllm.log" && exit 1; }
  sleep 1
done
echo "vLLM is up after $SECONDS s"

"$python" "$here/conversation.py" "$turns" >"$work/conversation.jsonl"
"$inferscale" import "$work/conversation.jsonl" --user bench --no-encode
"$inferscale" encode
echo "$turns turns remembered after $SECONDS s"
"$inferscale" serve --port $port >"$work/serve.log" 2>&1 &
servers+=($!)
until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do
  kill -0 "${servers[1]}" 2>/dev/null || { cat "$work/serve.log" && exit 1; }
  sleep 0.2
done
# shellcheck disable=SC2086
"$python" "$here/gateway.py" --url http://127.0.0.1:$port --out "$out" ${GATEWAY_OPTIONS:-}
