package table

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
)

// Of very many replicas, what is known of the oldest is forgotten.
func TestReplicasAreBounded(t *testing.T) {
	var r Replicas
	now := time.Now()
	all := someNodes(t, 20)
	for i, n := range all {
		r.Refuses(n, now.Add(time.Duration(i)))
	}
	if len(r.all) != maxReplicas {
		t.Fatal(len(r.all))
	}
	leaves := func(n *nodes.Node, now time.Time) bool {
		return r.Leaves(n, hlc.Timestamp{}, 0, false, now)
	}
	if leaves(all[0], now) || !leaves(all[19], now) || leaves(all[19], now.Add(2*LeftAloneFor)) {
		t.Error("the wrong ones are left alone")
	}
}
