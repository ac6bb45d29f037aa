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

// The next attempts of a transaction lock the keys that it has read and written (contention.go).
// That does not help with what it has only read: a span into which others put new keys, or a key
// that others write. So when attempts have failed over that, the next attempts hold everything that
// the last one has read and not written, in the leaders' memory, before they read it: other writers
// wait. An attempt that runs to its end that way cannot fail over its reads again.

const (
	// holdAfter is the number of attempts that must fail over what they have only read before the
	// next holds it. An attempt that has held locks for more than a second counts as enough.
	holdAfter = 2
	// maxHeld bounds the spans of a keyspace, or of one of its hash partitions, that are held. If
	// there are more, neighbours are held together with the keys between them.
	maxHeld = 64
)

// heldSpans is what the next attempts of a transaction hold. The zero heldSpans is empty.
type heldSpans struct {
	// failures counts the attempts that have failed over what they had only read.
	failures int
	// spans are in the order of keyspaces, partitions and keys.
	spans []committer.Span
	// anchor is where the record of an attempt was, or would have been; its Key may be empty.
	anchor committer.Key
}

// note notes a conflict.
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
		return // an attempt that took long must not fail once more
	}
	spans := t.readOnly()
	if !t.ended || t.rolledBack {
		// The attempt would have read more.
		spans = append(spans, h.spans...)
	}
	h.spans = condenseSpans(spans)
}

// failedOverRead reports that a conflict is over something else than a key that the transaction has
// both read and written; such a key is locked the next time.
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

// readOnly returns what the transaction has read and not written, and what it was about to scan.
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

// condenseSpans covers ordered spans with at most maxHeld spans for each hash partition, and for
// each keyspace.
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

// holdAhead holds, before the first read, what earlier attempts have failed over. It runs once.
func (t *Txn) holdAhead(ctx context.Context) error {
	if t.heldAhead || len(t.held.spans) == 0 {
		return nil
	}
	t.heldAhead = true
	ctx, cancel := t.client.conn.Bound(ctx)
	defer cancel()
	table := t.client.conn.Sender.Table()
	spans := slices.DeleteFunc(slices.Clone(t.held.spans), func(s committer.Span) bool {
		return table.KeyspaceByID(s.Keyspace) == nil // dropped, which the function will find
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

// holds reports that a key lies in the spans that the transaction holds.
func (t *Txn) holds(ks *route.Keyspace, key []byte) bool {
	return slices.ContainsFunc(t.holding, func(s committer.Span) bool {
		return s.Keyspace == ks.ID && s.Contains(key) &&
			(s.Hash == committer.AllPartitions ||
				s.Hash == int(keys.HashPartition(key, ks.Info.HashPartitions)))
	})
}
