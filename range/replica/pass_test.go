package replica

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// clientPass counts what is left in it.
type clientPass struct {
	client uint64
	group  *instantGroup
	left   int
}

func (p *clientPass) Client() uint64 { return p.client }

func (p *clientPass) Propose(term uint64, data []byte) error {
	p.left++
	return p.group.Propose(term, data)
}

// What is evaluated in a pass is left in it only if nothing but its client waits for it.
func TestProposedInPass(t *testing.T) {
	for name, test := range map[string]struct {
		// clients have a write in the queue each, in this order. The first is the one that evaluates.
		clients []uint64
		// entryBytes and inFlight bound entries, and how many are on their way.
		entryBytes, inFlight int
		want                 int
	}{
		"its own":                   {[]uint64{1, 1, 1}, 1 << 20, 2, 1},
		"another's in the entry":    {[]uint64{1, 2}, 1 << 20, 2, 0},
		"another entry comes":       {[]uint64{1, 1}, 300, 2, 0},
		"no room for another entry": {[]uint64{1, 1, 1}, 300, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, g, done := benchReplica(t)
			defer done()
			r.node.MaxEntryBytes, r.node.MaxInFlight = test.entryBytes, test.inFlight
			answers := 0
			var served [][]config.Pending
			for i, client := range test.clients {
				q := put(i, uint64(i+1),
					&kvpb.Timestamp{Wall: uint64(time.Now().Add(-time.Second).UnixNano())})
				pending := []config.Pending{{Client: client, Request: q, Arrived: time.Now(),
					Reply: func(*kvpb.Response) { answers++ }}}
				if queued, ok := r.Take(pending); !queued || !ok {
					t.Fatal("a write was not taken")
				}
				served = append(served, pending)
			}
			pass := &clientPass{client: test.clients[0], group: g}
			r.Evaluate(pass)
			if pass.left != test.want {
				t.Errorf("%d entries were left in the pass, want %d", pass.left, test.want)
			}
			for g.deliver() {
			}
			for _, pending := range served {
				r.Serve(pending, time.Now())
			}
			if answers != len(test.clients) {
				t.Errorf("%d of %d writes are answered", answers, len(test.clients))
			}
		})
	}
}
