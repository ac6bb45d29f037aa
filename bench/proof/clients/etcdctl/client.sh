#!/usr/bin/env bash
# What etcdctl offers, against the servers of ENDPOINTS. $1 is the program.
set -euo pipefail
program=("$1" --endpoints "$ENDPOINTS" --command-timeout 30s --dial-timeout 10s)
etcdctl() { "${program[@]}" "$@"; }
temporary=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$temporary"' EXIT

# is WHAT GOT WANT
is() {
	if [ "$2" != "$3" ]; then
		echo "$1: got '$2', want '$3'" >&2
		exit 1
	fi
}

# has FILE TEXT waits until a file has a line.
has() {
	for _ in $(seq 300); do
		if grep -qx -e "$2" "$1"; then return; fi
		sleep 0.1
	done
	echo "$1 never had $2:" >&2
	cat "$1" >&2
	exit 1
}

use() {
	local at=$1
	is put "$(etcdctl put "$at/a" 1)" OK
	is get "$(etcdctl get "$at/a" --print-value-only)" 1
	is del "$(etcdctl del "$at/a")" 1
	is txn "$(printf 'version("%s/a") = "0"\n\nput %s/a 2\n\n\n' "$at" "$at" |
		etcdctl txn | tail -1)" OK
	lease=$(etcdctl lease grant 60 | cut -d' ' -f2)
	is 'put with a lease' "$(etcdctl put "$at/leased" x --lease="$lease")" OK
	etcdctl lease keep-alive --once "$lease" >/dev/null
	etcdctl lease timetolive "$lease" --keys | grep -q "$at/leased"
	etcdctl lease revoke "$lease" >/dev/null
	is 'get after the lease' "$(etcdctl get "$at/leased")" ''
	is lock "$(etcdctl lock "$at/lock" -- echo locked)" locked
	etcdctl member list >/dev/null
}

use before
"${program[@]}" watch watched >"$temporary/watch" &
# The watch is there when its first event has come.
until grep -qx begin "$temporary/watch"; do etcdctl put watched begin >/dev/null; done
"${program[@]}" elect vote first >"$temporary/first" &
first=$!
has "$temporary/first" first
"${program[@]}" elect --listen vote >"$temporary/listen" &
has "$temporary/listen" first
etcdctl endpoint health >/dev/null 2>&1
etcdctl put kept yes >/dev/null
echo KILL
read -r _
use after
is 'what was put before' "$(etcdctl get kept --print-value-only)" yes
etcdctl put watched end >/dev/null
has "$temporary/watch" end
kill "$first"
wait "$first" || true
"${program[@]}" elect vote second >"$temporary/second" &
has "$temporary/second" second
has "$temporary/listen" second
