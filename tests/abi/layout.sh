#!/bin/sh
# layout.sh PROGRAM REVIEWED: sizes and offsets of the public structs are those that were reviewed.
set -eu
"$1" | diff -u "$2" - || {
    echo "a public struct has changed: callers built before would break"
    exit 1
}
