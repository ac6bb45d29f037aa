package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// flight is a version in flight: evaluated, proposed or about to be, and not yet applied.
type flight struct {
	// key is a user key.
	key       string
	timestamp hlc.Timestamp
	request   mvcc.RequestID
	// value belongs to the request that wrote it.
	value     []byte
	tombstone bool
	// waits: with commit wait.
	waits bool
	// sequence is of the proposal that carries it.
	sequence uint64
	// older and newer are versions of the same key, in flight too.
	older, newer *flight
}

// chain is a key's versions in flight; there is at least one.
type chain struct {
	oldest, newest *flight
}

// overlay is what is in flight, by key: evaluation reads it as if it lay on top of the state. Writes of one hot key need
// therefore not wait for each other; they are evaluated in log order, one on top of the other. That is sound since the
// entries of a leader's term take effect in order or not at all (see appliedRecord.accepts).
//
// INVARIANT: a version is taken out only after it can be read from the engine. Who finds no version of a key here, and reads
// the engine afterwards, sees every version that was put in here before he looked.
//
// It is not safe for concurrent use; the memory of a chain is not changed but under the replica's lock.
type overlay struct {
	keys map[string]chain
	// peak is the greatest number of keys since the map was made. Maps do not shrink.
	peak int
}

// retainedKeys is up to how many keys an empty overlay keeps its map.
const retainedKeys = 8

// add puts a version on top.
func (o *overlay) add(f *flight) {
	if o.keys == nil {
		o.keys, o.peak = make(map[string]chain), 0
	}
	c, ok := o.keys[f.key]
	if ok {
		f.older, c.newest.newer = c.newest, f
		c.newest = f
	} else {
		c = chain{f, f}
	}
	o.keys[f.key] = c
	o.peak = max(o.peak, len(o.keys))
}

// remove takes out the versions of an applied proposal, which must be the oldest ones of their keys.
func (o *overlay) remove(flights []*flight) {
	for _, f := range flights {
		c, ok := o.keys[f.key]
		if !ok || c.oldest != f {
			continue // another leadership's
		}
		if f.newer == nil {
			delete(o.keys, f.key)
			continue
		}
		f.newer.older = nil
		c.oldest = f.newer
		o.keys[f.key] = c
	}
	if len(o.keys) == 0 && o.peak > retainedKeys {
		o.keys = nil
	}
}

// clear forgets everything: the leadership that proposed it is over.
func (o *overlay) clear() { o.keys = nil }
