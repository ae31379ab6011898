#!/usr/bin/env bash
# Installs srl from the folder of this script alone, and measures this machine's GPU:
#
#   bash gpu_check.sh [FOLDER [MINUTES [OPTION ...]]]
#
# FOLDER (gpu_check) gets gpu.json and gpu.md, written anew after each row; rows of an earlier run
# that are not measured again stay. MINUTES (8) is for the measurements; installation takes some seconds more. The options go to
# `srl bench gpu`, such as --on-cpu. PYTHON names the Python that has JAX. Nothing but FOLDER and a
# temporary folder is written.
set -u
kit=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-gpu_check}" || exit 2
out=$(cd "${1:-gpu_check}" && pwd)
minutes=${2:-8}
shift $(($# < 2 ? $# : 2))
python=$(command -v "${PYTHON:-python3}") && python=$(realpath -s "$python") &&
  "$python" -c 'import jax, numpy' 2>/dev/null || {
  echo "${PYTHON:-python3} is no Python with JAX and NumPy; name one: PYTHON=/path/to/python3" >&2
  exit 2
}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$kit" \
  --no-deps --no-compile --no-cache-dir --target "$temporary/site" "$kit"/*.whl || exit 2
echo "installed after $SECONDS s"

# -P keeps the current folder off the path: it may hold the sources of srl, without its C++ module.
export PYTHONPATH="$temporary/site${PYTHONPATH:+:$PYTHONPATH}"
export SRL_COMPILATION_CACHE=${SRL_COMPILATION_CACHE:-$temporary/compiled}
cd "$out" || exit 2
"$python" -P -m srl bench gpu --minutes "$minutes" --out "$out" "$@"
code=$?
echo "ended after $SECONDS s with code $code"
exit $code
