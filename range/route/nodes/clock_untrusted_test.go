package nodes

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What a node says of the time while it does not know whether its clock is right is no sample for
// the clock estimate; the session takes it in.
func TestUntrustedClockIsNoSample(t *testing.T) {
	clock := &clock.Clock{}
	l := &Lane{Node: &Node{of: &shared{config: Config{Clock: clock}}}}
	for _, untrusted := range []bool{true, false} {
		now := &kvpb.Timestamp{Wall: 1e18}
		if untrusted {
			now = &kvpb.Timestamp{Wall: 9e17}
		}
		w := Awaited{tick: new(atomic.Int32), from: time.Now(), sampled: true}
		if _, err := l.Received(w, &kvpb.Response{Now: now, ClockUntrusted: untrusted},
			nil); err != nil {
			t.Fatal(err)
		}
		if got := clock.Session().Wall; got != int64(now.Wall) {
			t.Errorf("untrusted: %v: the session stands at %d", untrusted, got)
		}
		if _, known := clock.Earliest(); known == untrusted {
			t.Errorf("untrusted: %v: the clock is known: %v", untrusted, known)
		}
	}
}
