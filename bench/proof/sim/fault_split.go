package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// split splits partitions at keys that the workloads use, several in turn, while other faults happen.
type split struct {
	// Partition is a place among the partitions, counted around, and Share where in its keys it
	// splits, of 1,000.
	Partition, Share int
	Times            int `most:"1000"`
	Every            time.Duration
	// Cancel is after how long each is taken back; 0: never.
	Cancel time.Duration
}

var _ = register("split", 22, 0, func(d *Dice) split {
	s := split{Partition: d.IntN(100), Share: d.IntN(1000), Times: d.Of(1, 1, 2, 4, 8),
		Every: d.Between(50*time.Millisecond, 5*time.Second)}
	if d.Of(0, 0, 0, 1) == 1 {
		s.Cancel = d.Between(time.Millisecond, 3*time.Second)
	}
	return s
})

// Begin implements Effect. The core is asked in the background: it may be cut off.
func (f split) Begin(w *World) (string, func() string) {
	w.asking(func(ctx context.Context, client *kv.Client) {
		for i := range f.Times {
			if i > 0 && !sleep(ctx, f.Every) {
				return
			}
			w.Event("%s", f.one(ctx, w, client, i))
		}
	})
	return "a partition begins to split", nil
}

// maxSplit bounds the partitions of a keyspace: with more of them the faults find each seldom.
const maxSplit = 24
