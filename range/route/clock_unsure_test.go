package route

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What a node says of the time while it does not know whether its clock is right is no sample of the present; the session takes it in.
func TestUnsureClockIsNoSample(t *testing.T) {
	s := &Sender{}
	l := &lane{node: &node{sender: s}}
	for _, unsure := range []bool{true, false} {
		now := &kvpb.Timestamp{Wall: 1e18}
		if unsure {
			now = &kvpb.Timestamp{Wall: 9e17}
		}
		w := awaited{tick: new(atomic.Int32), from: time.Now(), sampled: true}
		if _, err := l.came(w, &kvpb.Response{Now: now, ClockUnsure: unsure}, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.Session().Wall; got != int64(now.Wall) {
			t.Errorf("unsure: %v: the session stands at %d", unsure, got)
		}
		if _, known := s.Earliest(); known == unsure {
			t.Errorf("unsure: %v: the present is known: %v", unsure, known)
		}
	}
}
