// Command capacity measures the capacity of a coordination service: keys, leases, watches and
// streams. Start a service for it. The command is no test: it fails only if the service does not
// work at all.
//
//	capacity -case file -n 10000000 -value 900 -to big.db     # a snapshot of etcd to import
//	tidemark start --dir D --listen 127.0.0.1:7400 --core 127.0.0.1:7400 \
//	    --max-concurrent-streams 20000 &
//	tidemark coord import big.db
//	capacity -case keys -n 10000000       # gets, puts and ranges of the imported keys
//	capacity -case leases -n 100000       # granted, kept alive, and all run out at once
//	capacity -case watches -n 100000      # on a tenth as many keys
//	capacity -case streams -n 10000       # watch streams, spread over -connections
//
// The command works with any server of the etcd v3 API, so that figures can be compared.
package main
