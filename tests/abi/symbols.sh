#!/bin/sh
# symbols.sh LIBRARY REVIEWED COMPILER HEADER...: what the shared library exports, what its public
# headers declare, and the reviewed list are one and the same.
set -eu
library=$1 reviewed=$2 compiler=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

# "T name@@VERSION" of functions and data; "A" is the version itself
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u \
    >"$work/exported"

# The public functions are those with default visibility; their name stands before the first "(".
for header; do
    echo "#include \"$header\""
done >"$work/all.c"
"$compiler" -E -P "$work/all.c" | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    sed -nE 's/.*__attribute__\(\(visibility\("default"\)\)\) *//p' |
    sed -E 's/^[^(]*[ *]([a-z0-9_]+) ?\(.*/\1/' | sort -u >"$work/declared"

status=0
diff -u "$reviewed" "$work/declared" || {
    echo "the headers declare other functions than $reviewed lists: review, then update the list"
    status=1
}
diff -u "$reviewed" "$work/exported" || {
    echo "$library exports other symbols than $reviewed lists: update the .map, or the list"
    status=1
}
exit $status
