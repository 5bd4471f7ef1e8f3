#!/bin/sh
# headers.sh HEADER... -- COMPILER FLAG...: each header compiles alone. Names all that do not.
set -u
headers=
while [ "$1" != -- ]; do
    headers="$headers $1"
    shift
done
shift
bad=
for header in $headers; do
    "$@" -fsyntax-only "$header" || bad="$bad $header"
done
if [ -n "$bad" ]; then
    echo "do not compile alone:$bad"
    exit 1
fi
