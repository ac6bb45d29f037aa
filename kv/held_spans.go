package kv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tidemarkdb/tidemark/kv/internal/reads"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// The next attempts of a transaction lock the keys that earlier attempts have read and written
// (contention.go). That does not help with data that the transaction only reads: a span into which
// others put new keys, or a key that others write. After several attempts have failed over such
// data, the next attempts first hold everything that the last attempt has read and not written, in
// the leaders' memory. Other writers then wait. An attempt that holds all of its reads cannot fail
// over them again.

const (
	// holdAfter is the number of attempts that must fail over data which they only read, before the
	// next attempt holds such data. A failed attempt that has held locks for more than a second is
	// enough by itself.
	holdAfter = 2
	// maxHeld limits the held spans of a keyspace, or of one of its hash partitions. If there are
	// more, neighbouring spans are held together with the keys between them.
	maxHeld = 64
)

// heldSpans has the spans that the next attempts of a transaction hold. The zero heldSpans is
// empty.
type heldSpans struct {
	// failures counts the attempts that have failed over data which they had only read.
	failures int
	// spans are in the order of keyspaces, partitions and keys.
	spans []committer.Span
	// anchor is the key of the record of an attempt, or the key that it would have had. Its Key may be
	// empty.
	anchor committer.Key
}

// note processes a conflict.
func (h *heldSpans) note(t *Txn, err *Error) {
	if err == nil || !errors.Is(err, ErrConflict) || committer.LeaderChanged(t.cause) ||
		!t.failedOverRead(err) {
		return
	}
	if a := t.transaction.Anchor(); len(a.Key) > 0 {
		h.anchor = a
	}
	h.failures++
	if h.failures < holdAfter && !t.transaction.Long() {
		return // an attempt that took long must not fail again
	}
	spans := t.readOnly()
	if !t.ended || t.rolledBack {
		// The attempt would have read more, so the spans of earlier attempts are kept.
		spans = append(spans, h.spans...)
	}
	h.spans = condenseSpans(spans)
}

// failedOverRead reports whether a conflict is over something other than a key that the transaction
// has both read and written. Such a key is locked by the next attempt.
func (t *Txn) failedOverRead(err *Error) bool {
	if len(err.Key) == 0 {
		return true
	}
	ks := t.client.conn.Sender.Table().KeyspaceByName(err.Keyspace)
	if ks == nil {
		return false
	}
	if _, written := t.writes.Get(ks.ID, err.Key); !written {
		return true
	}
	_, read := t.set.Seen(ks, err.Key)
	return !read && !t.set.IsLocked(ks.ID, err.Key)
}

// readOnly returns the keys and spans that the transaction has read and not written, and the rest
// of the spans that it was scanning.
func (t *Txn) readOnly() []committer.Span {
	all := t.set.All()
	spans := all.Spans
	for _, k := range all.Keys {
		if _, written := t.writes.Get(k.Keyspace, k.Key); written {
			continue
		}
		hash := committer.AllPartitions
		if ks := t.client.conn.Sender.Table().KeyspaceByID(k.Keyspace); ks != nil && ks.Hashed() {
			hash = int(keys.HashPartition(k.Key, ks.Info.HashPartitions))
		}
		spans = append(spans, committer.Span{Keyspace: k.Keyspace, Hash: hash, Span: keys.Point(k.Key)})
	}
	for _, s := range t.open {
		switch {
		case s.endless:
			spans = append(spans, committer.Span{Keyspace: s.keyspace.ID,
				Hash: committer.AllPartitions, Span: s.whole})
		case s.any:
			spans = append(spans, committer.Span{Keyspace: s.keyspace.ID,
				Hash: committer.AllPartitions, Span: s.covered})
		}
	}
	return spans
}

// condenseSpans covers ordered spans by at most maxHeld spans for each hash partition and each
// keyspace.
func condenseSpans(spans []committer.Span) (out []committer.Span) {
	type place struct {
		keyspace keys.KeyspaceID
		hash     int
	}
	byPlace := make(map[place][]keys.Span)
	var places []place
	for _, s := range spans {
		p := place{s.Keyspace, s.Hash}
		if byPlace[p] == nil {
			places = append(places, p)
		}
		byPlace[p] = append(byPlace[p], s.Span)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.keyspace, b.keyspace), cmp.Compare(a.hash, b.hash))
	})
	for _, p := range places {
		for _, s := range reads.Cover(byPlace[p], maxHeld) {
			out = append(out, committer.Span{Keyspace: p.keyspace, Hash: p.hash, Span: s.Clone()})
		}
	}
	return out
}

// holdAhead holds, before the first read, the spans over which earlier attempts have failed. It
// runs once.
func (t *Txn) holdAhead(ctx context.Context) error {
	if t.heldAhead || len(t.held.spans) == 0 {
		return nil
	}
	t.heldAhead = true
	ctx, cancel := t.client.conn.Bound(ctx)
	defer cancel()
	table := t.client.conn.Sender.Table()
	spans := slices.DeleteFunc(slices.Clone(t.held.spans), func(s committer.Span) bool {
		return table.KeyspaceByID(s.Keyspace) == nil // dropped: the function will find that
	})
	if len(spans) == 0 {
		return nil
	}
	anchor := t.held.anchor
	if len(anchor.Key) == 0 || table.KeyspaceByID(anchor.Keyspace) == nil {
		anchor = committer.Key{Keyspace: spans[0].Keyspace, Key: bytes.Clone(spans[0].Start)}
		if len(anchor.Key) == 0 {
			anchor.Key = []byte{0}
		}
	}
	since, whole, err := t.transaction.Hold(ctx, t.at, anchor, spans)
	if err != nil {
		return err
	}
	if whole {
		t.holding = spans
	}
	switch {
	case since.IsZero():
	case t.at.IsZero():
		t.start(since, since)
	default:
		return t.moveTo(ctx, since)
	}
	return nil
}

// holds reports whether a key lies in the spans that the transaction holds.
func (t *Txn) holds(ks *route.Keyspace, key []byte) bool {
	return slices.ContainsFunc(t.holding, func(s committer.Span) bool {
		return s.Keyspace == ks.ID && s.Contains(key) &&
			(s.Hash == committer.AllPartitions ||
				s.Hash == int(keys.HashPartition(key, ks.Info.HashPartitions)))
	})
}
