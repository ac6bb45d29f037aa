#!/bin/sh
# Measures Tidemark beside etcd: `bench/compare/run.sh [-quick] [-json FILE] ...`; -help lists
# everything.
# Makes what is missing: bin/tidemark, and etcd from the distribution's package.
set -eu
cd "$(dirname "$0")/../.."

if ! command -v etcd >/dev/null; then
	echo "compare: etcd is not installed; trying: apt-get install etcd-server" >&2
	as_root=
	[ "$(id -u)" = 0 ] || as_root="sudo -n"
	if ! { $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends etcd-server; } >&2; then
		echo "compare: cannot install etcd-server here. Install etcd 3.4 or later yourself and" \
			"put it into PATH, or measure Tidemark alone with -only tidemark." >&2
		case " $* " in *" tidemark "*) ;; *) exit 1 ;; esac
	fi
	# The package starts a member of its own where there is a service manager; it would be
	# measured along.
	if command -v systemctl >/dev/null; then $as_root systemctl stop etcd >/dev/null 2>&1 || true; fi
fi

[ -x bin/tidemark ] || CGO_ENABLED=0 go build -trimpath -o bin/tidemark ./cmd/tidemark
CGO_ENABLED=0 go build -o bin/bench-compare ./bench/compare
exec bin/bench-compare "$@"
