#!/usr/bin/env bash
# Runs the standard workloads against a fresh demo cluster on this machine, and stops it again.
# Arguments go to every `tidemark bench`: for instance --clients 64 --duration 30s.
set -euo pipefail
cd "$(dirname "$0")/.."

tidemark=bin/tidemark
port=${PORT:-7480}
partitions=${PARTITIONS:-8}
dir=$(mktemp -d)
log=$dir/demo.log
export TIDEMARK_ENDPOINTS=127.0.0.1:$port

"$tidemark" demo --dir "$dir/data" --listen "$TIDEMARK_ENDPOINTS" >"$log" 2>&1 &
demo=$!
trap 'kill "$demo" 2>/dev/null || true; wait "$demo" 2>/dev/null || true; rm -rf "$dir"' EXIT

if ! "$tidemark" status --wait --nodes 3 --timeout 60s >/dev/null; then
    echo "the demo cluster did not become ready; it said:" >&2
    cat "$log" >&2
    exit 1
fi
"$tidemark" keyspace create bench --partitions "hash:$partitions"

run() {
    echo
    "$tidemark" bench "$@"
}
run put --keyspace bench "${@}"
run get --keyspace bench "${@}"
run scan --keyspace bench --skip-load "${@}"
# The two that insert come last: the others want the records as they were loaded.
for workload in a b c f d e; do
    run ycsb --workload "$workload" --keyspace bench --skip-load "${@}"
done
