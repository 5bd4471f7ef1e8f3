#!/usr/bin/env bash
# check.sh [full]: builds with each compiler and sanitizer, runs every suite, sums up. A step that
# fails does not stop those that do not need it. Exit code 0 only when nothing failed; under CI=true
# a skip that this machine does not excuse is a failure, too (scripts/summary.py).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

mode=${1:-usual}
results=$PWD/build/results
rm -rf "$results"
mkdir -p "$results"
python=$PWD/.venv/bin/python
failed=0
width=$(nproc)
export RDZVD=$PWD/build/dev/librdzv/rdzvd

# Thread sanitizer cannot lay out its shadow memory when addresses are randomised too widely.
steady_addresses() {
    if setarch -R true 2>/dev/null; then
        setarch -R "$@"
    else
        "$@"
    fi
}

# no_results NAME: a suite ended without a list of its tests, which the sum would not notice.
no_results() {
    [ -e "$results/$1.xml" ] || echo "the suite ended before its last test" >"$results/$1.failed"
}

# ctest_run NAME PRESET ARGUMENTS...
ctest_run() {
    local name=$1 preset=$2
    shift 2
    steady_addresses ctest --preset "$preset" -j "$width" --output-junit "$results/$name.xml" "$@"
}

# built PRESET: builds; a failure counts as one in the sum.
built() {
    step "$1: build" build "$1" || {
        failed=1
        echo "did not build" >"$results/$1.failed"
        return 1
    }
}

# c_suite PRESET ARGUMENTS...: builds, and when that works tests.
c_suite() {
    local preset=$1
    shift
    built "$preset" || return 0
    step "$preset: ctest" ctest_run "$preset" "$preset" "$@" || {
        failed=1
        no_results "$preset"
    }
}

# python_suite DIRECTORY ARGUMENTS...
python_suite() {
    local name=$1
    shift
    step "tests/$name: pytest" "$python" -m pytest -q -rs "tests/$name" \
        --junitxml="$results/$name.xml" "$@" || {
        failed=1
        no_results "$name"
    }
}

fuzz_run() {
    scripts/fuzz.sh "${FUZZ_SECONDS:-600}" || {
        echo "found something, see build/crashes" >"$results/fuzz.failed"
        return 1
    }
}

heading "Checking"
c_suite dev
c_suite clang -L '^(unit|fuzz)$'
built release || true # what the README has a user build
c_suite asan
c_suite tsan

slow=(-m "not slow")
[ "$mode" = full ] && slow=()
python_suite python "${slow[@]}"
if [ -e .venv/no-torch ]; then
    cp .venv/no-torch "$results/torch.skipped"
else
    python_suite torch "${slow[@]}"
fi

if [ "$mode" = full ]; then
    c_suite release
    c_suite minimal
    step "dev: slow tests" ctest_run slow slow || {
        failed=1
        no_results slow
    }
    command -v afl-clang-fast >/dev/null && { built afl || true; }
    built fuzz && { step "fuzz: run" fuzz_run || failed=1; }
fi

printf '%d min %02d s in all\n' $((SECONDS / 60)) $((SECONDS % 60))
python3 scripts/summary.py "$results" || failed=1
exit "$failed"
