package committer

import (
	"context"
	"maps"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Most transactions that read a key also write it. Such a key's Prepare compares the key with the
// value that was read. Then the key needs no refresh afterwards; and if another transaction is
// writing the key, the Prepare fails at once instead of waiting.

// compared holds the reads that Prepares compare, and the partitions that have compared. It may be
// nil.
type compared struct {
	reads *Reads
	// known are the keys that are compared; keys that turn out not to be compared are removed.
	known map[string]bool
	// under are the partitions that have confirmed the leadership under whose volatile locks keys
	// were read there.
	under map[keys.PartitionID]bool
}

// known returns the written keys that were read; nil if there are none.
func (r *Reads) known(writes []Write) map[string]bool {
	if len(r.Keys)+len(r.Locked) == 0 {
		return nil
	}
	written := make(map[string]bool, len(writes))
	for i := range writes {
		written[writes[i].mapKey()] = true
	}
	var known map[string]bool
	for _, all := range [][]Key{r.Keys, r.Locked} {
		for _, k := range all {
			if m := k.mapKey(); written[m] {
				if known == nil {
					known = make(map[string]bool)
				}
				known[m] = true
			}
		}
	}
	return known
}

// Known returns the written keys that were read, in the order of the writes.
func (t *Transaction) Known(writes []Write, reads Reads) (out []Key) {
	known := reads.known(writes)
	for _, w := range writes {
		if known[w.mapKey()] {
			out = append(out, w.Key)
		}
	}
	return out
}

// toCompare returns the written keys that are compared as they are locked. A later attempt compares
// only keys that it has locked already. On other keys it waits for locks, which aborts younger
// transactions. A comparison would fail at any lock, even at that of an idle younger transaction,
// and the attempts would fail again and again.
func (t *Transaction) toCompare(writes []Write, reads Reads) map[string]bool {
	known := reads.known(writes)
	if t.again {
		maps.DeleteFunc(known, func(key string, _ bool) bool {
			_, locked := t.locked[key]
			return !locked
		})
	}
	return known
}

// reads reports whether a chunk has keys to be compared.
func (c *chunk) reads() bool {
	for _, m := range c.mutations {
		if m.Read {
			return true
		}
	}
	return false
}

// ask adds to a request the reads with which its keys are to be compared.
func (x *compared) ask(c *chunk, p *kvpb.PrepareRequest) {
	if x == nil || !c.reads() {
		return
	}
	p.ReadAt, p.Leadership = wire.ToTimestamp(x.reads.At), x.reads.Leaderships[c.place.Partition]
}

// landed records that a chunk was locked, and whether its keys were compared.
func (x *compared) landed(c *chunk, done bool) {
	if x == nil || !c.reads() {
		return
	}
	if !done {
		for _, m := range c.mutations {
			delete(x.known, Key{c.place.Keyspace, m.Key}.mapKey())
		}
		return
	}
	if x.reads.Leaderships[c.place.Partition] == nil {
		return
	}
	if x.under == nil {
		x.under = make(map[keys.PartitionID]bool)
	}
	x.under[c.place.Partition] = true
}

// without returns the reads that still have to be refreshed when the locks have been acquired: the
// reads without the compared keys, and without leaderships that covered only compared keys.
func (c *Committer) without(ctx context.Context, x *compared) (Reads, error) {
	rest := *x.reads
	if len(x.known) == 0 {
		return rest, nil
	}
	rest.Keys = nil
	for _, k := range x.reads.Keys {
		if !x.known[k.mapKey()] {
			rest.Keys = append(rest.Keys, k)
		}
	}
	if len(x.reads.Leaderships) == 0 {
		return rest, nil
	}
	left, err := c.readChunks(ctx, rest.Keys, nil)
	if err != nil {
		return Reads{}, err
	}
	rest.Leaderships = make(map[keys.PartitionID]*kvpb.Leadership)
	for _, r := range left {
		if l := x.reads.Leaderships[r.place.Partition]; l != nil {
			rest.Leaderships[r.place.Partition] = l
		}
	}
	for p := range x.reads.Leaderships {
		if rest.Leaderships[p] == nil && !x.under[p] {
			return Reads{}, errLost() // the partition has changed
		}
	}
	return rest, nil
}
