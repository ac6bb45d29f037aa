package proposal

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Write is a pending write: a version that is evaluated, is proposed or about to be, and is not yet
// applied. Its exported fields do not change after Pending.Add.
type Write struct {
	// Key is a user key.
	Key       string
	Timestamp hlc.Timestamp
	Request   mvcc.RequestID
	// Value belongs to the request that wrote it.
	Value     []byte
	Tombstone bool
	// Expires is as in mvcc.Version.
	Expires int64
	// CommitWait makes a client that learns of the write wait until its timestamp is past on every
	// clock.
	CommitWait bool
	// Sequence is that of the entry which carries the write.
	Sequence uint64
	// older and newer are pending writes of the same key.
	older, newer *Write
}

// Older returns the pending write of the same key that was added before; nil if there is none.
func (w *Write) Older() *Write { return w.older }

// Version returns the version that the write makes.
func (w *Write) Version() mvcc.Version {
	v := mvcc.Version{
		Timestamp: w.Timestamp, Kind: mvcc.KindValue, Request: w.Request,
		CommitWait: w.CommitWait, Expires: w.Expires, Value: w.Value,
	}
	if w.Tombstone {
		v.Kind = mvcc.KindTombstone
	}
	return v
}

// Pending holds the pending writes of a leader, by key: evaluation reads them as if they lay on top
// of the engine's state. So writes of one hot key need not wait for each other: they are evaluated
// in log order, one on top of the other. That is sound since the entries of a leader's term take
// effect in order or not at all.
//
// INVARIANT: a write is removed only after it can be read from the engine. A caller that finds no
// write of a key here, and reads the engine afterwards, sees every write that was added before.
//
// The zero Pending is empty. It is not safe for concurrent use.
type Pending struct {
	keys map[string]chain
	// peak is the greatest number of keys since the map was made. Maps do not shrink.
	peak int
}

// chain holds a key's pending writes; there is at least one.
type chain struct {
	oldest, newest *Write
}

// retainedKeys is the number of keys up to which an empty Pending keeps its map.
const retainedKeys = 8

// Len returns the number of keys that have pending writes.
func (p *Pending) Len() int { return len(p.keys) }

// Add puts a write on top of those of its key. Writes of a key are added in the order of their
// timestamps.
func (p *Pending) Add(w *Write) {
	if p.keys == nil {
		p.keys, p.peak = make(map[string]chain), 0
	}
	c, ok := p.keys[w.Key]
	if ok {
		w.older, c.newest.newer = c.newest, w
		c.newest = w
	} else {
		c = chain{w, w}
	}
	p.keys[w.Key] = c
	p.peak = max(p.peak, len(p.keys))
}

// Remove takes out the writes of an applied entry, which must be the oldest of their keys. Writes
// that were cleared before are skipped.
func (p *Pending) Remove(writes []*Write) {
	for _, w := range writes {
		c, ok := p.keys[w.Key]
		if !ok || c.oldest != w {
			continue
		}
		if w.newer == nil {
			delete(p.keys, w.Key)
			continue
		}
		w.newer.older = nil
		c.oldest = w.newer
		p.keys[w.Key] = c
	}
	if len(p.keys) == 0 && p.peak > retainedKeys {
		p.keys = nil
	}
}

// Clear forgets all writes: the leadership epoch that proposed them is over.
func (p *Pending) Clear() { p.keys = nil }

// Newest returns the newest pending write of a key; nil if there is none.
func (p *Pending) Newest(key string) *Write { return p.keys[key].newest }

// Oldest returns the oldest pending write of a key; nil if there is none.
func (p *Pending) Oldest(key string) *Write { return p.keys[key].oldest }

// At returns the newest pending write of a key at or below a timestamp; nil if there is none.
func (p *Pending) At(key string, at hlc.Timestamp) *Write {
	w := p.Newest(key)
	for w != nil && at.Less(w.Timestamp) {
		w = w.older
	}
	return w
}

// Find returns the pending write of a key above a timestamp that a request made; nil if there is
// none.
func (p *Pending) Find(key string, above hlc.Timestamp, request mvcc.RequestID) *Write {
	for w := p.Newest(key); w != nil && above.Less(w.Timestamp); w = w.older {
		if w.Request == request {
			return w
		}
	}
	return nil
}
