#!/usr/bin/env bash
# fuzz.sh SECONDS: shares the time among the libFuzzer targets of build/fuzz; new inputs go to
# build/corpus, an input that fails to build/crashes. Known inputs in tests/fuzz/corpus are the seed.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t targets < <(find build/fuzz/tests/fuzz -maxdepth 1 -type f -executable \
    -name 'fuzz_*' -not -name '*_replay')
if [ "${#targets[@]}" -eq 0 ]; then
    echo "no fuzz target in build/fuzz/tests/fuzz: cmake --preset fuzz && cmake --build --preset fuzz"
    exit 1
fi
each=$((${1:?seconds} / ${#targets[@]}))
mkdir -p build/crashes
for target in "${targets[@]}"; do
    name=$(basename "$target")
    corpora=("build/corpus/$name" "tests/fuzz/corpus/${name#fuzz_}")
    mkdir -p "${corpora[0]}"
    [ -d "${corpora[1]}" ] || unset 'corpora[1]'
    echo "$name for $each s"
    "$target" -max_total_time="$each" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="build/crashes/$name-" "${corpora[@]}"
done
echo "note: ${#targets[@]} targets, $each s each, nothing found"
