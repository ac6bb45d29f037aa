package peers

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/host/delays"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// RoundTrip is how long a message takes to a host and back.
type RoundTrip struct {
	Host uint64
	Took time.Duration
}

// maxHeldMicros is the longest time for which a peer may claim to have held a ping.
const maxHeldMicros = uint64(time.Hour / time.Microsecond)

// PingSent notes that a ping leaves for a host now, and adds to it the echo of the host's last
// ping.
func (p *Peers) PingSent(host uint64, ping *peerpb.HostPing, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.hosts[host]; x != nil {
		echo := x.trip.Sent(ping.Number, now)
		ping.Echo, ping.EchoHeldMicros = echo.Number, uint64(echo.Held.Microseconds())
	}
}

// PingHeard notes the number and the echo of a ping that has come from a host now.
func (p *Peers) PingHeard(host uint64, ping *peerpb.HostPing, now int64) {
	held := time.Duration(min(ping.GetEchoHeldMicros(), maxHeldMicros)) * time.Microsecond
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.hosts[host]; x != nil {
		x.trip.Heard(ping.GetIncarnation(), ping.GetNumber(),
			delays.Echo{Number: ping.GetEcho(), Held: held}, now)
	}
}

// RoundTrips lists the known round trips, by host.
func (p *Peers) RoundTrips(now int64) (all []RoundTrip) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.hosts {
		if took := x.trip.Median(now); took > 0 && !x.down {
			all = append(all, RoundTrip{id, took})
		}
	}
	slices.SortFunc(all, func(a, b RoundTrip) int { return cmp.Compare(a.Host, b.Host) })
	return all
}
