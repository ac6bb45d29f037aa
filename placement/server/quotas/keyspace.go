package quotas

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// keyspace is a keyspace that has a quota.
type keyspace struct {
	name string
	// size, requests and bytes are the quotas, as in clusterpb.Keyspace.
	size, requests, bytes uint64
	// demands has the demands of the nodes that have any. sum is the sum of the demands.
	demands map[keys.NodeID]demand
	sum     demand
	// looked is the time of the last search for demands that no longer count.
	looked int64
	// used is the number of bytes of the keyspace. It is valid if known is true.
	used  uint64
	known bool
}

// demand is the demand of clients on a node in a second. at is the time of the node's report, by
// Quotas.now.
type demand struct {
	requests, bytes uint64
	at              int64
}

// mostDemand bounds a reported demand, so that a sum of demands does not overflow.
const mostDemand = 1 << 45

// set replaces the demand of a node.
func (ks *keyspace) set(node keys.NodeID, d demand) {
	before := ks.demands[node]
	ks.sum.requests += d.requests - before.requests
	ks.sum.bytes += d.bytes - before.bytes
	if d.requests == 0 && d.bytes == 0 {
		delete(ks.demands, node)
		return
	}
	ks.demands[node] = d
}

// forget removes the demands that no longer count.
func (ks *keyspace) forget(now int64) {
	if now-ks.looked < int64(time.Second) && ks.looked != 0 {
		return
	}
	ks.looked = now
	for node, d := range ks.demands {
		if now-d.at > int64(DemandTime) {
			ks.set(node, demand{})
		}
	}
}
