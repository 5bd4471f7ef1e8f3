#!/usr/bin/env bash
# rdzvd.sh RDZVD: the daemon from outside: ready line, log lines, signals, exit codes, what it says
# when it cannot start.
set -euo pipefail
rdzvd=$1
work=$(mktemp -d)
pid=

# A server that a failed check left behind ends, too.
clean_up() {
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT

fail() {
    echo "$*"
    cat "$work/err"
    exit 1
}

# Runs RDZVD with arguments; its exit code must be the first one.
expect_code() {
    local want=$1 code=0
    shift
    "$rdzvd" "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$want" ] || fail "rdzvd $*: exit code $code, not $want"
}

# Starts a server; sets pid and address.
start() {
    : >"$work/ready"
    "$rdzvd" "$@" >"$work/ready" 2>"$work/err" &
    pid=$!
    local tries=0
    until [ -s "$work/ready" ] || [ $((tries++)) = 100 ]; do
        sleep 0.05
    done
    address=$(sed -n 's/^rdzvd ready on //p' "$work/ready")
    [ -n "$address" ] || fail "no ready line"
}

expect_end() {
    local code=0
    wait "$pid" || code=$?
    pid=
    [ "$code" = "$1" ] || fail "ended with $code, not $1"
    [ "$(wc -l <"$work/ready")" = 1 ] || fail "more than one line on standard output"
}

said() {
    grep -q -- "$1" "$work/err" || fail "did not say: $1"
}

expect_code 0 --help
grep -q -- "--rdzv-endpoint=127.0.0.1:29400" "$work/out" || fail "no example in --help"
expect_code 0 --version
grep -qE '^rdzvd [0-9]+\.[0-9]+\.[0-9]+$' "$work/out" || fail "--version"

for bad in 127.0.0.1 :80 127.0.0.1: 127.0.0.1:65536 127.0.0.1:-1 ::1:80 127.0.0.1:8x ""; do
    expect_code 2 --listen "$bad"
    said "ADDR:PORT"
done
expect_code 2 --listen example.org:0
said "names are not looked up"
expect_code 2 --log-level loud
said "loud"
expect_code 2 --drain-timeout -1
expect_code 2 --drain-timeout 9999999999999
expect_code 2 --no-such-option
expect_code 2 argument
expect_code 3 --listen 192.0.2.1:0
said "ip -brief address"

# One server, another one on its port, a client, a drain that ends when the client leaves.
start --listen 127.0.0.1:0 --drain-timeout 30
first=$pid
first_address=$address
port=${address##*:}
expect_code 3 --listen "$first_address"
said "Address already in use"
said "ss -ltnp 'sport = :$port'"
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf '\x00\xce\xf7\x85\x3c\x07' >&3
[ "$(head -c 8 <&3 | od -An -v -tx1 | tr -d ' \n')" = 0000000000000000 ] || fail "no answer"
kill -TERM "$first"
sleep 0.2
kill -0 "$first" || fail "did not wait for its client"
printf '\x07' >&3
[ "$(head -c 8 <&3 | wc -c)" = 8 ] || fail "a client that is in is not served while draining"
exec 3>&-
pid=$first
expect_end 0

# A client that does not leave: the time is over, or a second signal comes.
start --listen 127.0.0.1:0 --drain-timeout 0
exec 3<>"/dev/tcp/127.0.0.1/${address##*:}"
printf '\x00\xce\xf7\x85\x3c\x07' >&3
head -c 8 <&3 >/dev/null
kill -TERM "$pid"
expect_end 0
said "1 clients still connected"
exec 3>&-

start --listen 127.0.0.1:0 --drain-timeout 60
exec 3<>"/dev/tcp/127.0.0.1/${address##*:}"
printf '\x00\xce\xf7\x85\x3c\x07' >&3
head -c 8 <&3 >/dev/null
kill -TERM "$pid" # SIGINT and SIGHUP may be ignored here: test_daemon.c has them
sleep 0.2
kill -TERM "$pid"
expect_end 1
exec 3>&-
! grep -q $'\033' "$work/err" || fail "colours in a file"

# Nobody reads its log any more: it goes on. The reader ends first, then a client makes it log.
mkfifo "$work/log"
exec 4<>"$work/log"
: >"$work/ready"
"$rdzvd" --listen 127.0.0.1:0 --log-level trace >"$work/ready" 2>"$work/log" 4<&- &
pid=$!
for _ in $(seq 100); do
    [ -s "$work/ready" ] && break
    sleep 0.05
done
address=$(sed -n 's/^rdzvd ready on //p' "$work/ready")
exec 4<&-
for _ in 1 2 3; do
    exec 3<>"/dev/tcp/127.0.0.1/${address##*:}"
    printf '\x00\xce\xf7\x85\x3c\x07' >&3
    [ "$(head -c 8 <&3 | wc -c)" = 8 ] || fail "no answer once nobody reads the log"
    exec 3>&-
done
kill -TERM "$pid"
expect_end 0

# A ready line that cannot be written: nobody would ever find it.
if [ -w /dev/full ]; then
    code=0
    timeout 10 "$rdzvd" --listen 127.0.0.1:0 >/dev/full 2>"$work/err" || code=$?
    [ "$code" = 4 ] || fail "full standard output: exit code $code, not 4"
    said "cannot write the ready line"
fi
# One that waits for a reader: a signal ends it.
mkfifo "$work/unread"
exec 5<>"$work/unread"
head -c 1000000 /dev/zero | timeout 1 dd bs=4096 of="$work/unread" status=none || true
code=0
timeout --preserve-status -k 5 1 "$rdzvd" --listen 127.0.0.1:0 >&5 2>"$work/err" || code=$?
exec 5>&-
[ "$code" = 4 ] || fail "standard output that is full: exit code $code, not 4"
said "cannot write the ready line: a signal came"
exec 4> >(exit 0)
sleep 0.2
code=0
timeout 10 "$rdzvd" --listen 127.0.0.1:0 >&4 2>"$work/err" || code=$?
exec 4>&-
[ "$code" = 4 ] || fail "standard output that nobody reads: exit code $code, not 4"
said "cannot write the ready line"

# Started without standard descriptors: none of its own takes their place.
"$rdzvd" --listen 127.0.0.1:0 --log-level trace <&- >&- 2>&- &
pid=$!
sleep 0.5
for fd in 0 1 2; do
    [ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ] || fail "descriptor $fd is not /dev/null"
done
kill -TERM "$pid"
wait "$pid" || fail "without standard descriptors: exit code $?"
pid=

# Beyond loopback it warns; tried where no one else can reach it.
if unshare -rn true 2>/dev/null; then
    rdzvd_inside=$rdzvd
    rdzvd=$work/isolated
    printf '#!/bin/sh\nexec unshare -rn "%s" "$@"\n' "$rdzvd_inside" >"$rdzvd"
    chmod +x "$rdzvd"
    start --listen '*:0'
    said "no authentication"
    kill -TERM "$pid"
    expect_end 0
    start --listen '*:0' --log-level error
    kill -TERM "$pid"
    expect_end 0
    [ ! -s "$work/err" ] || fail "--log-level error still said something"
else
    echo "no network namespace here: the warning beyond loopback was not tried"
fi
echo passed
