package peer

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// peerHost is a host of a test, with one transport. Its fields may be set before anything is sent.
type peerHost struct {
	id        uint64
	addr      string
	transport *Transport
	stop      func()

	handle      func(from uint64, b *peerpb.MessageBatch)
	unreachable func(host uint64)
	refused     func(host uint64)
	snapshot    func(ctx context.Context, from uint64, h *peerpb.SnapshotHeader, r io.Reader) error
}

func (h *peerHost) HandleMessages(from uint64, b *peerpb.MessageBatch) {
	if h.handle != nil {
		h.handle(from, b)
	}
}

func (h *peerHost) HandleUnreachable(host uint64) {
	if h.unreachable != nil {
		h.unreachable(host)
	}
}

func (h *peerHost) HandleRefused(host uint64) {
	if h.refused != nil {
		h.refused(host)
	}
}

func (h *peerHost) HandleSnapshot(ctx context.Context, from uint64, header *peerpb.SnapshotHeader,
	r io.Reader) error {
	return h.snapshot(ctx, from, header, r)
}

// newHosts starts hosts 1 to n, which know one another.
func newHosts(t testing.TB, n network, count int, change ...func(*Config)) []*peerHost {
	t.Helper()
	hosts := make([]*peerHost, count)
	var mu sync.Mutex
	addrs := make(map[uint64]string)
	for i := range hosts {
		h := &peerHost{id: uint64(i + 1)}
		hosts[i] = h
		c := Config{
			Realm: "node", Self: h.id,
			Cluster: func() uint64 { return testCluster },
			Resolve: func(host uint64) (string, bool) {
				mu.Lock()
				defer mu.Unlock()
				addr, ok := addrs[host]
				return addr, ok
			},
			Dialer:  n.dialer(t, fmt.Sprintf("h%d", h.id)),
			Handler: h,
		}
		for _, f := range change {
			f(&c)
		}
		h.transport = NewTransport(c)
		t.Cleanup(h.transport.Close)
		var addr string
		addr, h.stop = n.servePeers(t, fmt.Sprintf("h%d:1", h.id), h.transport)
		mu.Lock()
		addrs[h.id] = addr
		h.addr = addr
		mu.Unlock()
	}
	return hosts
}
