package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// split splits partitions at keys that the workloads use, several in turn, while other faults
// happen.
type split struct {
	// Partition is an index into the partitions, modulo their number. Share is the position of the
	// split among the keys, in thousandths.
	Partition, Share int
	Times            int `most:"1000"`
	Every            time.Duration
	// Cancel is the time from a split's begin to its cancellation; 0: splits are not cancelled.
	Cancel time.Duration
}

var splits = register("split", 0, 0, func(d *Dice) split {
	s := split{Partition: d.IntN(100), Share: d.IntN(1000), Times: d.Of(1, 1, 2, 4, 8),
		Every: d.Between(50*time.Millisecond, 5*time.Second)}
	if d.Of(0, 0, 0, 1) == 1 {
		s.Cancel = d.Between(time.Millisecond, 3*time.Second)
	}
	return s
})

// Begin implements Effect. A goroutine calls the core, because the core may be cut off.
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

const (
	// maxBoundaries bounds the number of boundaries between neighbours, and so of partitions: with
	// more partitions, faults would hit each of them too seldom.
	maxBoundaries = 12
	// splitSample is how many keys a split chooses its key from.
	splitSample = 300
)

// one splits one partition, and describes the split.
func (f split) one(ctx context.Context, w *World, client *kv.Client, turn int) string {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil || len(partitions) == 0 {
		return fmt.Sprintf("no partition splits: %v", err)
	}
	if n := len(boundaries(partitions)); n >= maxBoundaries {
		return fmt.Sprintf("no partition splits: there are %d boundaries", n)
	}
	keyspace := partitions[(f.Partition+turn)%len(partitions)].Keyspace
	var found [][]byte
	for pair, err := range client.Keyspace(keyspace).Scan(ctx, kv.KeysOnly(), kv.Limit(splitSample)) {
		if err != nil {
			return fmt.Sprintf("keyspace %s does not split: %v", keyspace, err)
		}
		found = append(found, pair.Key)
	}
	if len(found) == 0 {
		return fmt.Sprintf("keyspace %s does not split: it is empty", keyspace)
	}
	at := found[(f.Share*len(found)/1000+turn*7)%len(found)]
	s, err := admin.New(client).SplitPartition(ctx, keyspace, at)
	if err != nil {
		return fmt.Sprintf("keyspace %s does not split at %q: %v", keyspace, at, err)
	}
	if s.Operator == 0 {
		return fmt.Sprintf("keyspace %s has a boundary at %q already", keyspace, at)
	}
	w.count("splits")
	if f.Cancel > 0 && sleep(ctx, f.Cancel) {
		err := admin.New(client).CancelOperator(ctx, s.Partition)
		return fmt.Sprintf("partition %d splits at %q, and is not to after %s: %v", s.Partition, at,
			f.Cancel, err)
	}
	return fmt.Sprintf("partition %d splits at %q into itself and %d", s.Partition, at, s.Child)
}

// splitting is a fault that splits partitions, and often a fault at the worst moment of a split.
func splitting(d *Dice, at time.Duration) []Fault {
	faults := []Fault{splits.at(d, at)}
	when := at + d.Between(0, 500*time.Millisecond)
	switch d.IntN(8) {
	case 0, 1:
		faults = append(faults, fault(when, d.Between(20*time.Millisecond, 6*time.Second),
			crash{d.Server(), d.Of(0, 50, 100)}))
	case 2:
		faults = append(faults, fault(when, d.Between(20*time.Millisecond, 4*time.Second),
			stop{d.Server()}))
	case 3:
		faults = append(faults, kinds["transfer"].at(d, when))
	case 4:
		faults = append(faults, kinds["cut"].at(d, when))
	case 5:
		faults = append(faults, kinds["move"].at(d, when))
	}
	return faults
}
