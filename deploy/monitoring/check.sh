#!/usr/bin/env bash
# Asks a real Prometheus, which scrapes a demo cluster under load, every query of every dashboard.
# It fails if a panel has no data that should have some, or a rule cannot be evaluated. It needs
# bin/tidemark (make build) and prometheus, and takes a minute. SECONDS_OF_LOAD=30.
set -euo pipefail
cd "$(dirname "$0")/../.."

load=${SECONDS_OF_LOAD:-30}
tidemark=bin/tidemark

[ -x "$tidemark" ] || { echo "there is no $tidemark: run make build" >&2; exit 1; }
command -v prometheus >/dev/null || {
    echo "prometheus is not installed. On Debian and Ubuntu:" >&2
    echo "    apt-get install --no-install-recommends prometheus" >&2
    exit 1
}

# free_port prints a port of this machine at which nothing listens.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}

dir=$(mktemp -d)
children=()
# shellcheck disable=SC2317 # called by the trap
stop() {
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap stop EXIT

# await NAME LOG COMMAND... waits until the command succeeds.
await() {
    local name=$1 log=$2
    shift 2
    for _ in $(seq 120); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.5
    done
    echo "$name did not become ready within a minute; it said:" >&2
    cat "$log" >&2
    exit 1
}

metrics=127.0.0.1:$(free_port)
"$tidemark" demo --dir "$dir/data" --listen 127.0.0.1:0 --http "$metrics" >"$dir/demo.log" 2>&1 &
children+=($!)
await "the demo cluster" "$dir/demo.log" grep -q '^ready after' "$dir/demo.log"
TIDEMARK_ENDPOINTS=$(sed -n 's/^ready after.* on \([^,]*\).*/\1/p' "$dir/demo.log")
export TIDEMARK_ENDPOINTS

prometheus=127.0.0.1:$(free_port)
cat >"$dir/prometheus.yaml" <<END
global:
  scrape_interval: 2s
  evaluation_interval: 5s
rule_files:
  - $PWD/deploy/monitoring/rules/tidemark.rules.yaml
scrape_configs:
  - job_name: tidemark
    static_configs:
      - targets: ["$metrics"]
END
prometheus --config.file "$dir/prometheus.yaml" --storage.tsdb.path "$dir/prometheus" \
    --web.listen-address "$prometheus" --log.level warn >"$dir/prometheus.log" 2>&1 &
children+=($!)
# shellcheck disable=SC2317 # called by await
ready() { exec 3<>"/dev/tcp/${prometheus/://}"; }
await Prometheus "$dir/prometheus.log" ready

# Single reads and writes, and transactions that are in each other's way, at the same time.
"$tidemark" keyspace create rows --partitions hash:4
echo "load for $load s"
"$tidemark" bench ycsb --workload a --keyspace rows --records 5000 --clients 8 --warm-up 1s \
    --duration "${load}s" >"$dir/ycsb.log" 2>&1 &
ycsb=$!
children+=("$ycsb")
"$tidemark" bench bank --clients 16 --warm-up 1s --duration "${load}s" >"$dir/bank.log" 2>&1 &
bank=$!
children+=("$bank")

# Ask while both still run.
sleep "$((load - 2))"
status=0
go run ./deploy/monitoring/ask -prometheus "http://$prometheus" || status=$?
for run in "$ycsb" "$bank"; do
    wait "$run" || { echo "a benchmark failed:" >&2; cat "$dir"/{ycsb,bank}.log >&2; status=1; }
done
if [ "$status" = 0 ]; then
    echo "all panels have data"
fi
exit "$status"
