package embedded

import (
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// PeerFilter is given each batch of Raft messages before it goes to another server's host, in the
// order of sending. What it wants to be sent it gives to send: at once or later, all or some, in
// another order, twice; send may be called from any goroutine, until the server is closed and
// after. That is how tests lose, delay and repeat messages, which a gRPC stream never does. The
// messages are the sender's: what is kept after the filter has returned is a clone, and nothing is
// changed.
//
// It is called from the workers that step the groups, and must not block. Snapshots and pings do
// not come by.
type PeerFilter func(to PeerLink, messages []*peerpb.RaftMessage, send func([]*peerpb.RaftMessage))

// PeerLink is whereto messages go.
type PeerLink struct {
	// Realm is "data" or "core". Host is the receiver's id in it, Address that of its server; empty
	// if it is not known at the moment.
	Realm   string
	Host    uint64
	Address string
	Class   peer.Class
}

// before puts the filter before a transport. A nil filter changes nothing.
func (f PeerFilter) before(realm string, t *peer.Transport,
	resolve func(uint64) (string, bool)) host.Transport {
	if f == nil {
		return t
	}
	return &filteredTransport{Transport: t, realm: realm, resolve: resolve, filter: f}
}

type filteredTransport struct {
	*peer.Transport
	realm   string
	resolve func(uint64) (string, bool)
	filter  PeerFilter
}

// Ping implements host.Transport.
func (f *filteredTransport) Ping(to uint64, p *peerpb.HostPing, beside []*peerpb.RaftMessage) {
	if len(beside) > 0 {
		f.Send(to, peer.ClassControl, beside)
	}
	f.Transport.Ping(to, p, nil)
}

// Send implements host.Transport.
func (f *filteredTransport) Send(to uint64, class peer.Class, messages []*peerpb.RaftMessage) {
	address, _ := f.resolve(to)
	f.filter(PeerLink{Realm: f.realm, Host: to, Address: address, Class: class}, messages,
		func(m []*peerpb.RaftMessage) {
			f.Transport.Send(to, class, m)
		})
}
