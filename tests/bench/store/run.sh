#!/usr/bin/env bash
# run.sh: builds for speed, then measures the store. The table and the JSON line go to standard
# output, all else to standard error. BUILD and PYTHON may name a build folder and an interpreter.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. scripts/lib.sh

programs() {
    cmake --preset release &&
        cmake --build --preset release --target rdzvd store_load store_get store_echo
}

if [ -z "${BUILD:-}" ]; then
    step "release: build" programs >&2
fi
exec "${PYTHON:-.venv/bin/python}" tests/bench/store/bench_store.py "${BUILD:-build/release}"
