#!/usr/bin/env bash
# bench.sh: builds for speed and runs the benchmarks of tests/bench, each of which prints one JSON
# line. Nothing is judged: numbers of a busy machine are worth little.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

heading "Measuring"
step "release: build" build release
ran=0
for program in tests/bench/bench_*.py build/release/tests/bench/bench_*; do
    [ -f "$program" ] || continue
    ran=$((ran + 1))
    case $program in
    *.py) .venv/bin/python "$program" ;;
    *) "$program" ;;
    esac
done
[ "$ran" -gt 0 ] || echo "There is no benchmark in tests/bench yet."
