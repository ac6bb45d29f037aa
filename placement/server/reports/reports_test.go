package reports

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestMajorityOfClocks: the time is what a majority of the nodes that are alive shows, at least.
func TestMajorityOfClocks(t *testing.T) {
	const unknown = -1
	for name, x := range map[string]struct {
		clocks []int64 // of nodes that are alive; 0: not told or not trusted
		want   int64
	}{
		"none":                  {nil, unknown},
		"one":                   {[]int64{5}, 5},
		"one, not trusted":      {[]int64{0}, unknown},
		"two":                   {[]int64{5, 9}, 5},
		"one of two":            {[]int64{5, 0}, unknown},
		"three":                 {[]int64{9, 5, 7}, 7},
		"two of three":          {[]int64{9, 0, 7}, 7},
		"one ahead, one behind": {[]int64{1 << 60, 5, 1}, 5},
		"four":                  {[]int64{4, 3, 2, 1}, 2},
	} {
		s := New()
		alive := map[uint64]bool{}
		for i, clock := range x.clocks {
			id := uint64(i + 1)
			alive[id] = true
			s.Heartbeat(1, clockHeartbeat(id, uint64(clock)), 10, 0)
		}
		s.Heartbeat(1, clockHeartbeat(100, 1<<61), 10, 0) // one that is not alive
		ahead, ok := s.Clocks(1, alive)
		if ok != (x.want != unknown) || ok && ahead != x.want {
			t.Errorf("%s: %d, %v", name, ahead, ok)
		}
		if _, ok := s.Clocks(2, alive); ok {
			t.Errorf("%s: what was told to another leader counts", name)
		}
	}
}

func clockHeartbeat(node, clock uint64) *clusterpb.HeartbeatRequest {
	return &clusterpb.HeartbeatRequest{Node: node,
		Stats: &clusterpb.NodeStats{ClockUnixNanos: clock}}
}

// What a node says that an order waits for is kept up to a length.
func TestLongReasonsAreCut(t *testing.T) {
	s := New()
	s.Heartbeat(1, &clusterpb.HeartbeatRequest{Node: 1, Full: true,
		Reports: []*clusterpb.PartitionReport{{Partition: 7, Term: 1, Generation: 1, Membership: 1,
			WaitsFor: strings.Repeat("é", 5000)}}}, 10, 0)
	if _, waits := s.Progress(7); len(waits) > meta.MaxTextBytes || !utf8.ValidString(waits) {
		t.Errorf("%d bytes are kept", len(waits))
	}
}
