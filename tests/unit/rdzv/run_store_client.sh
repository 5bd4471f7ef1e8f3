#!/usr/bin/env bash
# run_store_client.sh CLIENT SERVER: every call of examples/store_client against examples/serve,
# what it prints and its exit codes. What goes well says nothing but its result.
set -euo pipefail
client=$1
coproc SERVE { exec "$2" 0; }
pid=$SERVE_PID
trap 'kill -KILL "$pid" 2>/dev/null || true' EXIT
read -r line <&"${SERVE[0]}"
port=${line##*:}

# expect CODE TEXT CALL...: the call's exit code and what it prints as its result.
expect() {
    local want=$1 text=$2 code=0 printed
    shift 2
    printed=$("$client" -t 2 127.0.0.1 "$port" "$@" 2>&1) || code=$?
    if [ "$code" != "$want" ] || [ "$printed" != "$text" ]; then
        printf 'store_client %s: exit code %s, not %s; printed:\n%s\nnot:\n%s\n' \
            "$*" "$code" "$want" "$printed" "$text"
        exit 1
    fi
}

# makes_no_sense ARGUMENT...: the usage, exit code 2.
makes_no_sense() {
    local code=0 said
    said=$("$client" "$@" 2>&1) || code=$?
    if [ "$code" != 2 ] || ! grep -q "cas KEY EXPECTED DESIRED" <<<"$said"; then
        echo "store_client $*: exit code $code: $said"
        exit 1
    fi
}

expect 0 0 set k value
expect 0 value get k
expect 0 0 append k " grows"
expect 0 "value grows" get k
expect 0 5 add n 5
expect 0 -2 add n -7
expect 0 0 mset a 1 b 2
expect 0 $'1\n2' mget a b
expect 0 1 check a b
expect 0 0 check a absent
expect 0 4 count
expect 0 1 cas a 0 3
expect 0 3 cas a 1 3
expect 0 1 delete b
expect 0 0 delete b
expect 0 0 push q first
expect 0 1 len q
expect 0 first pop q
expect 0 0 len q
"$client" 127.0.0.1 "$port" list 2>/dev/null | sort | cmp - <(printf 'a\nk\nn\n')
expect 0 0 wait a k
expect 0 0 barrier bar 1
if "$client" -t 0.2 127.0.0.1 "$port" wait absent 2>/dev/null; then
    echo "a wait for an absent key ended well"
    exit 1
fi
# What makes no sense is answered with what would, and is not sent.
before=$("$client" 127.0.0.1 "$port" count)
for words in "dance" "add n abc" "add n 5x" "add n" "barrier bar none" "set k" "get" "get k k" \
    "count k" "wait" "cas a 0" "mset a 1 b" "mget$(printf ' k%.0s' {1..65})"; do
    read -ra argv <<<"$words"
    makes_no_sense 127.0.0.1 "$port" "${argv[@]}"
done
makes_no_sense 127.0.0.1 "$port" add n ""
expect 0 -2 add n 0
expect 0 "$before" count
for words in "" "-z 127.0.0.1 $port count" "-t x 127.0.0.1 $port count" "127.0.0.1 banana count" \
    "127.0.0.1 0 count" "127.0.0.1 65536 count" "127.0.0.1 $port"; do
    read -ra argv <<<"$words"
    makes_no_sense "${argv[@]}"
done
kill -INT "$pid"
wait "$pid"
# Nobody is there any more.
code=0
"$client" -t 0.5 127.0.0.1 "$port" get k 2>/dev/null || code=$?
[ "$code" = 1 ] || { echo "without a server: exit code $code"; exit 1; }
echo passed
