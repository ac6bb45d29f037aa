#!/usr/bin/env bash
# Three servers with default flags, each in a memory control group of its own, under load: writes of
# small and large values, reads, scans, and clients that send what is small on the wire and large in
# memory. Every server must live, and the kernel must have killed nothing. Root, and control groups of
# version 1 or 2 that can be written to, are needed.
#
#   LIMITS   limits of the groups, one run each       (default "512 1024 4096", in MiB)
#   SECONDS_EACH  duration of each kind of load       (default 20)
#   BIN      the program                              (default bin/tidemark)
#   HOSTILE  the program of ./bench/proof/hostile/bombs; empty: without
#   PORT     the first of six ports                   (default 7600)
set -euo pipefail
BIN=${BIN:-bin/tidemark} PORT=${PORT:-7600} each=${SECONDS_EACH:-20}
work=$(mktemp -d) failed=0
declare -A pid=()
root=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
if [ ! -d $root ]; then
	root=/sys/fs/cgroup limit=memory.max
	echo +memory >$root/cgroup.subtree_control 2>/dev/null || true
fi
group() { echo "$root/tidemark-test-$$-$1"; }
clean() {
	for p in "${pid[@]}"; do kill -9 "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	for i in 1 2 3; do rmdir "$(group $i)" 2>/dev/null || true; done
	rm -rf "$work"
}
trap clean EXIT
core=127.0.0.1:$((PORT + 1)),127.0.0.1:$((PORT + 2)),127.0.0.1:$((PORT + 3))
tm() { timeout 300 "$BIN" "$@" --endpoints "$core"; }

# value of a file of a group, of a line of the file if a name is given; 0 if there is none.
value() { awk -v n="${3:-}" 'n == "" || $1 == n {v = $NF} END {print v + 0}' "$(group $1)/$2" 2>/dev/null || echo 0; }
look() {
	for i in 1 2 3; do
		local anon kills
		anon=$(($(value $i memory.stat rss) + $(value $i memory.stat anon)))
		kills=$(($(value $i memory.oom_control oom_kill) + $(value $i memory.events oom_kill)))
		printf '   server %d: %d MiB anonymous, %d kills\n' $i $((anon >> 20)) "$kills"
		if [ "$kills" != 0 ] || ! kill -0 "${pid[$i]}" 2>/dev/null; then failed=1; fi
	done
}

"$BIN" secret >"$work/secret" && chmod 600 "$work/secret"
for mib in ${LIMITS:-512 1024 4096}; do
	echo "== $mib MiB"
	for i in 1 2 3; do
		mkdir -p "$(group $i)"
		echo $((mib << 20)) >"$(group $i)/$limit"
		( echo $BASHPID >"$(group $i)/cgroup.procs"
		  exec "$BIN" start --dir "$work/$mib-$i" --listen 127.0.0.1:$((PORT + i)) --core "$core" \
			--secret-file "$work/secret" --http 127.0.0.1:$((PORT + 3 + i)) >>"$work/$mib-$i.log" 2>&1 ) &
		pid[$i]=$!
	done
	timeout 90 "$BIN" status --wait --nodes 3 --timeout 85s --endpoints "$core" >/dev/null
	tm keyspace create k --partitions hash:8 >/dev/null
	for load in "put --clients 64 --value-size 4096" "put --clients 32 --value-size 262144" \
		"get --clients 64" "scan --clients 16"; do
		echo "-- bench $load"
		tm bench $load --keyspace k --duration ${each}s 2>&1 | tail -n 1 || failed=1
		look
	done
	if [ -n "${HOSTILE:-}" ]; then
		echo "-- bombs"
		timeout 120 "$HOSTILE" -addresses "$core" -duration ${each}s || failed=1
		look
	fi
	for i in 1 2 3; do kill "${pid[$i]}" 2>/dev/null || true; wait "${pid[$i]}" 2>/dev/null || true; done
	pid=()
	if [ $failed = 1 ]; then tail -n 3 "$work"/$mib-*.log; echo "FAILED at $mib MiB"; exit 1; fi
	rm -rf "$work"/$mib-?
done
echo ok
