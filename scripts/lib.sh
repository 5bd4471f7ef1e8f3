# lib.sh: quiet, timed, logged steps. Sourced by the other scripts, from the repository's root.
# shellcheck shell=bash

# make's job server belongs to make: ninja and ctest choose their own width.
unset MAKEFLAGS MFLAGS MAKELEVEL

log_dir=build/log
if ! mkdir -p "$log_dir" 2>/dev/null || ! [ -w "$log_dir" ]; then
    echo "$PWD/$log_dir cannot be written. If build/ belongs to another user: chown it, or use a" \
        "checkout of your own." >&2
    exit 1
fi

# heading TEXT
heading() {
    printf '%s\n' "$1"
}

# step NAME COMMAND...: runs it with its output in a log, prints one line with its time and the
# closing line of a test runner, if there is one. A failure shows the end of the log. COMMAND runs
# without errexit: functions chain with &&.
step() {
    local name=$1 start=$SECONDS status=0 log
    shift
    log="$log_dir/$(printf '%s' "$name" | tr -cs 'a-zA-Z0-9.\n' -).log"
    printf '  %-26s ' "$name"
    rm -f "$log" # which may be another user's, from a run with sudo
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        printf 'ok %6d s   %s\n' $((SECONDS - start)) "$(closing_line "$log")"
        return 0
    fi
    printf 'FAILED %2d s   %s\n' $((SECONDS - start)) "$(closing_line "$log")"
    printf -- '----- the end of %s\n' "$log"
    tail -n 80 "$log"
    printf -- '----- the whole log is in %s\n' "$log"
    return "$status"
}

# closing_line LOG: what ctest or pytest said last, or the last line that starts with "note: ".
closing_line() {
    grep -aE '^(=+ )?([0-9]+ (passed|failed|skipped|error)|no tests ran)|tests passed|^note: ' "$1" |
        tail -n 1 | sed -e 's/^=* //' -e 's/ =*$//' -e 's/^note: //'
}

# build PRESET: configures and compiles build/PRESET; two callers do not meet in one directory.
build() {
    (
        flock 9 &&
            cmake --preset "$1" &&
            cmake --build --preset "$1"
    ) 9>"build/.lock-$1"
}
