package direct

import "sync/atomic"

// Stats count calls of the methods that may go past gRPC, however they ended. Those by which
// servers are looked for do not count.
type Stats struct {
	// Direct were sent past gRPC, or may have been.
	Direct uint64
	// GRPC went by gRPC: there was no server to call, or that did not take them, or they said in
	// their metadata or options what only gRPC carries.
	GRPC uint64
}

// counters are what Stats are made of.
type counters struct{ direct, grpc atomic.Uint64 }

// Stats are those since New, also after Close. A call is counted when its way is known.
func (c *Calls) Stats() Stats {
	return Stats{Direct: c.counters.direct.Load(), GRPC: c.counters.grpc.Load()}
}
