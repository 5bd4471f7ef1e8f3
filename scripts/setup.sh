#!/usr/bin/env bash
# setup.sh [GROUP...]: brings what building, testing and the demo need on Debian 12 or 13: those
# groups of packages.txt or all of it, a virtual environment .venv with requirements.txt, and the
# rallypoint package in it. Each part is skipped when it is there already. PYTHON=python3.12 chooses
# another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# wanted_packages [GROUP...]: a group's name is a comment of its own; an empty line ends the group.
wanted_packages() {
    local group names
    # shellcheck disable=SC2046 # one argument a group
    [ $# -gt 0 ] || set -- $(sed -n 's/^# \([a-z]*\)$/\1/p' scripts/packages.txt)
    for group in "$@"; do
        names=$(sed -n "/^# $group\$/,/^\$/{/^[^#]/p}" scripts/packages.txt)
        if [ -z "$names" ]; then
            echo "scripts/packages.txt has no group $group" >&2
            return 1
        fi
        echo "$names"
    done
}

missing_packages() {
    local wanted
    wanted=$(wanted_packages "$@" | sort -u) || return 1
    # shellcheck disable=SC2086 # one argument a package
    comm -23 <(printf '%s\n' "$wanted") <(
        dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
            sed -n 's/^installed //p' | sort -u)
}

packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "note: not Debian: install what scripts/packages.txt lists by your own means"
        return 0
    fi
    local missing
    missing=$(missing_packages "$@") || return 1
    missing=$(xargs <<<"$missing")
    if [ -z "$missing" ]; then
        echo "note: nothing missing"
        return 0
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "These packages are missing, and installing them takes root, or sudo, which is not here:"
        echo "    apt-get install --no-install-recommends $missing"
        return 1
    fi
    as_root apt-get update -q || echo "apt-get update failed in part; going on with its old lists"
    # shellcheck disable=SC2086 # one argument a package
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 $missing &&
        echo "note: installed $(wc -w <<<"$missing")"
}

# Python 3.11 is the one that torch 2.13.0 is known to have a build for wherever this runs.
# One that was asked for is taken or nothing.
find_python() {
    local candidate candidates=("${PYTHON:-}")
    [ -n "${PYTHON:-}" ] || mapfile -t candidates < <(type -aP python3.11; type -aP python3)
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' \
            2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON does not run as a Python of 3.9 or newer with venv: name another" \
            "one, or none." >&2
        return 1
    fi
    echo "No Python with venv found: install python3 (3.9 or newer) and python3-venv." >&2
    return 1
}

torch_is_wanted() {
    [ -n "${PYTHON:-}" ] || "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'
}

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"
}

install_torch() {
    local python=$1 torch output
    torch=$(grep '^torch==' scripts/requirements.txt)
    if ! torch_is_wanted "$python"; then
        echo "no python3.11 on PATH, which $torch needs; $("$python" --version) is here" >.venv/no-torch
    elif output=$(pip install "$torch" 2>&1); then
        echo "$output"
    elif grep -q 'No matching distribution' <<<"$output"; then
        echo "pip finds no build of $torch for $("$python" --version)" >.venv/no-torch
    else
        echo "$output"
        return 1
    fi
}

environment() {
    local python stamp
    python=$(find_python) || return 1
    stamp=$({ cat scripts/requirements.txt && "$python" -VV; } | sha256sum)
    if [ "$(cat .venv/stamp 2>/dev/null)" != "$stamp" ] || ! .venv/bin/python -c '' 2>/dev/null; then
        "$python" -m venv --clear .venv &&
            install_torch "$python" &&
            pip install -r <(grep -v '^torch==' scripts/requirements.txt) &&
            echo "$stamp" >.venv/stamp || return 1
    fi
    echo "note: $(.venv/bin/python --version)$(sed 's/^/, without torch: /' .venv/no-torch 2>/dev/null)"
}

# The package bundles the libraries, so it is stale when any of their sources changed.
rallypoint() {
    local stamp
    stamp=$(find bindings/python libckpt librdzv proto common cmake pkgconfig CMakeLists.txt \
        -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    if [ "$(cat .venv/stamp-rallypoint 2>/dev/null)" = "$stamp" ]; then
        echo "note: up to date"
        return 0
    fi
    pip install --no-deps --no-build-isolation --force-reinstall ./bindings/python &&
        echo "$stamp" >.venv/stamp-rallypoint &&
        echo "note: installed"
}

heading "Setting up"
step packages packages "$@"
step "python environment" environment
step "rallypoint package" rallypoint
