#!/usr/bin/env bash
# lint.sh [--changed]: clang-tidy, clang-format, mandoc and shellcheck over all files, or over those
# that differ from origin/main and those not committed yet. Needs build/dev for its compile commands.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

files() {
    if [ "$only" = --changed ]; then
        { git diff --name-only --diff-filter=d origin/main 2>/dev/null || git diff --name-only HEAD
          git ls-files --others --exclude-standard; } | sort -u
    else
        git ls-files --cached --others --exclude-standard
    fi | while read -r file; do if [ -f "$file" ]; then printf '%s\n' "$file"; fi; done
}

# over PATTERN COMMAND...: runs COMMAND over the files whose names match, all of them in one call.
over() {
    local pattern=$1
    shift
    files | { grep -E "$pattern" || true; } | xargs -r "$@"
}

# sources: .c files, also those that include a file of the list by what the dev build noted: code in
# a header is checked where it is used.
sources() {
    files | while read -r file; do
        case $file in
        *.c) printf '%s\n' "$file" ;;
        *.h) awk -v RS= -F '\n *' -v header="$PWD/$file" -v top="$PWD/" \
            'index($0 "\n", " " header "\n") && sub(top, "", $2) && $2 !~ /^build/ { print $2 }' \
            build/dev/.deps ;;
        esac
    done | sort -u
}

# One file a process; a file that the dev build does not compile has no flags to be read with.
tidy() {
    ninja -C build/dev -t deps >build/dev/.deps || return
    sources | while read -r file; do
        if grep -q "\"file\": \".*/$file\"" build/dev/compile_commands.json; then
            printf '%s\n' "$file"
        fi
    done | xargs -r -n1 -P "$(nproc)" clang-tidy -p build/dev --quiet
}

only=${1:-}
failed=0
heading "Linting"
step "dev: build" build dev
step clang-tidy tidy || failed=1
step clang-format over '\.[ch]$' clang-format --dry-run -Werror || failed=1
step mandoc over '^docs/man/' mandoc -Tlint -Wwarning || failed=1
step shellcheck over '(\.sh|^\.ci/run)$' shellcheck -x -S warning || failed=1
exit "$failed"
