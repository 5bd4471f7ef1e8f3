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
    fi | while read -r file; do [ -f "$file" ] && printf '%s\n' "$file"; done
}

# over PATTERN COMMAND...: runs COMMAND over the files whose names match, all of them in one call.
over() {
    local pattern=$1
    shift
    files | { grep -E "$pattern" || true; } | xargs -r "$@"
}

# One file a process; a file that the dev build does not compile has no flags to be read with.
tidy() {
    over '\.c$' grep -l '' | while read -r file; do
        grep -q "\"file\": \".*/$file\"" build/dev/compile_commands.json && printf '%s\n' "$file"
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
