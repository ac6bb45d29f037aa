package wire

import (
	"math"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func TestTimestamps(t *testing.T) {
	for _, ts := range []hlc.Timestamp{{Wall: 1}, {Wall: 5, Logical: 7}, {Logical: 3},
		hlc.MaxTimestamp} {
		if got := FromTimestamp(ToTimestamp(ts)); got != ts {
			t.Errorf("%v became %v", ts, got)
		}
		if got := FromClusterTimestamp(ToClusterTimestamp(ts)); got != ts {
			t.Errorf("%v became %v", ts, got)
		}
	}
	if ToTimestamp(hlc.Timestamp{}) != nil || ToClusterTimestamp(hlc.Timestamp{}) != nil ||
		!FromClusterTimestamp(nil).IsZero() {
		t.Error("the zero timestamp is not unset")
	}
	if !FromTimestamp(nil).IsZero() || !FromTimestamp(&kvpb.Timestamp{}).IsZero() {
		t.Error("unset is not the zero timestamp")
	}
	if got := FromTimestamp(&kvpb.Timestamp{Wall: math.MaxInt64 + 1}); got != hlc.MaxTimestamp {
		t.Errorf("a wall time beyond all clocks became %v", got)
	}
}
