#!/usr/bin/env bash
# fuzz.sh SECONDS [libfuzzer|afl [TARGET...]]: shares the time among the fuzz targets of build/fuzz
# (libFuzzer) and build/afl (AFL++), or those named: c10d, manifest, ... Without an engine both take
# half of it; AFL++ may be missing. New inputs go to build/corpus, one that fails to build/crashes.
# Known inputs in tests/fuzz/corpus are the seed.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    echo "usage: scripts/fuzz.sh SECONDS [libfuzzer|afl [TARGET...]]"
    exit 2
}

seconds=${1:-}
engine=${2:-both}
names=("${@:3}")
[[ $seconds =~ ^[1-9][0-9]*$ && $engine =~ ^(both|libfuzzer|afl)$ ]] || usage
mkdir -p build/corpus build/crashes

# targets PRESET: the fuzz programs that are wanted; fails when there is none.
targets() {
    local name found=()
    mapfile -t found < <(find "build/$1/tests/fuzz" -maxdepth 1 -type f -executable \
        -name 'fuzz_*' -not -name '*_replay' 2>/dev/null | sort)
    if [ "${#names[@]}" -gt 0 ]; then
        found=()
        for name in "${names[@]}"; do
            [ -x "build/$1/tests/fuzz/fuzz_$name" ] && found+=("build/$1/tests/fuzz/fuzz_$name")
        done
    fi
    if [ "${#found[@]}" -eq 0 ]; then
        echo "no such fuzz target in build/$1/tests/fuzz: build it first with" \
            "cmake --preset $1 && cmake --build --preset $1" >&2
        return 1
    fi
    printf '%s\n' "${found[@]}"
}

# Every known input of NAME in one folder.
gather() {
    local name=$1 into=$2
    mkdir -p "$into"
    find "tests/fuzz/corpus/$name" "build/corpus/fuzz_$name" -type f -exec cp -n -t "$into" {} + \
        2>/dev/null || true
}

run_libfuzzer() {
    local target=$1 name=$2 each=$3 options=()
    local corpora=("build/corpus/fuzz_$name")
    mkdir -p "${corpora[0]}"
    [ -d "tests/fuzz/corpus/$name" ] && corpora+=("tests/fuzz/corpus/$name")
    [ -e "tests/fuzz/fuzz_$name.dict" ] && options=("-dict=tests/fuzz/fuzz_$name.dict")
    "$target" -max_total_time="$each" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="build/crashes/fuzz_$name-" "${options[@]}" "${corpora[@]}"
}

# AFL++ ends with 0 whatever it found. A hang is an input that takes longer than 20 s.
run_afl() {
    local target=$1 name=$2 each=$3 options=() work input finding=0
    work=build/afl-work/$name
    rm -rf "$work"
    gather "$name" "$work/in"
    [ -e "tests/fuzz/fuzz_$name.dict" ] && options=(-x "tests/fuzz/fuzz_$name.dict")
    AFL_NO_UI=1 AFL_NO_COLOR=1 AFL_SKIP_CPUFREQ=1 AFL_NO_AFFINITY=1 AFL_BENCH_UNTIL_CRASH=1 \
        AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_HANG_TMOUT=20000 \
        ASAN_OPTIONS=abort_on_error=1:symbolize=0:detect_leaks=0 UBSAN_OPTIONS=abort_on_error=1 \
        afl-fuzz -i "$work/in" -o "$work/out" -V "$each" -t 1000 -m none "${options[@]}" \
        -- "$target" >"$work/log" 2>&1 || { tail -n 30 "$work/log" && return 1; }
    for input in "$work"/out/default/queue/id*; do
        cp "$input" "build/corpus/fuzz_$name/$(sha1sum <"$input" | cut -d ' ' -f 1)"
    done
    for input in "$work"/out/default/{crashes,hangs}/id*; do
        [ -e "$input" ] || continue
        finding=1
        cp "$input" "build/crashes/fuzz_$name-afl-$(sha1sum <"$input" | cut -d ' ' -f 1)"
    done
    grep -E '^(run_time|execs_done|corpus_count|edges_found|saved_(crashes|hangs)) ' \
        "$work/out/default/fuzzer_stats"
    return "$finding"
}

# run ENGINE PRESET SECONDS
run() {
    local programs target name each
    programs=$(targets "$2")
    each=$(($3 / $(wc -l <<<"$programs")))
    for target in $programs; do
        name=$(basename "$target")
        name=${name#fuzz_}
        mkdir -p "build/corpus/fuzz_$name"
        echo "$name: $1 for $each s"
        "run_$1" "$target" "$name" "$each"
    done
    echo "note: $1: $(wc -l <<<"$programs") targets, $each s each, nothing found"
}

case $engine in
libfuzzer) run libfuzzer fuzz "$seconds" ;;
afl) run afl afl "$seconds" ;;
both)
    if command -v afl-fuzz >/dev/null && targets afl >/dev/null; then
        run libfuzzer fuzz $((seconds / 2))
        run afl afl $((seconds / 2))
    else
        echo "AFL++ is left out: it takes the package afl++, and the preset afl built"
        run libfuzzer fuzz "$seconds"
    fi
    ;;
esac
