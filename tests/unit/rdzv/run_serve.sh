#!/usr/bin/env bash
# run_serve.sh PROGRAM: runs examples/serve on a free port, says hello as a PyTorch client does, adds
# to a key, interrupts the program, and wants it to end well. First, what makes no sense is refused.
set -euo pipefail
for words in 29400x -1 65536 x "0 x" "0 1s" "0 -1" "0 nan" "0 1 2"; do
    code=0
    read -ra argv <<<"$words"
    said=$(timeout 5 "$1" "${argv[@]}" 2>&1) || code=$?
    if [ "$code:$said" != "2:usage: serve [PORT [SECONDS]]" ]; then
        echo "serve $words: exit code $code: $said"
        exit 1
    fi
done
coproc SERVE { exec "$1" 0; }
pid=$SERVE_PID
exec 4<&"${SERVE[0]}"
read -r line <&4
exec 3<>"/dev/tcp/127.0.0.1/${line##*:}"
printf '\x00\xce\xf7\x85\x3c\x0d\x11\x22\x33\x44' >&3
printf '\x04\x02\0\0\0\0\0\0\0/k\x05\0\0\0\0\0\0\0' >&3
answer=$(head -c 12 <&3 | od -An -v -tx1 | tr -d '\n')
exec 3>&-
[ "$answer" = " 11 22 33 44 05 00 00 00 00 00 00 00" ] || { echo "answered:$answer"; exit 1; }
kill -INT "$pid"
rest=$(cat <&4)
wait "$pid"
echo "$line"
echo "$rest"
grep -qx "1 clients, 3 requests, 1 keys" <<<"$rest"
grep -qx closed <<<"$rest"
