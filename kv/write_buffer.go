package kv

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/RaduBerinde/btreemap"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

const (
	// maxTransactionKeys and maxTransactionBytes bound what one transaction writes.
	maxTransactionKeys  = 100_000
	maxTransactionBytes = 64 << 20
	// maxSavepoints is how many savepoints are kept, the latest ones.
	maxSavepoints = 1000
	// bufferDegree is that of the tree.
	bufferDegree = 16
)

// bufferKey orders the writes of a transaction.
type bufferKey struct {
	keyspace keys.KeyspaceID
	key      []byte
}

func compareBufferKeys(a, b bufferKey) int {
	return cmp.Or(cmp.Compare(a.keyspace, b.keyspace), bytes.Compare(a.key, b.key))
}

// ownWrite is what a transaction has written to a key.
type ownWrite struct {
	value   []byte
	deleted bool
	// made is how many savepoints there had ever been.
	made uint64
}

// writeBuffer holds the writes of a transaction, by key. Savepoints are copies of it that share what is the same.
type writeBuffer struct {
	tree *btreemap.BTreeMap[bufferKey, ownWrite]
	// bytes is the size of keys and values; replaced that of what savepoints alone still hold.
	bytes, replaced int

	savepoints []savepoint
	// made counts the savepoints there ever were.
	made uint64
}

type savepoint struct {
	number          uint64
	tree            *btreemap.BTreeMap[bufferKey, ownWrite]
	bytes, replaced int
}

func newWriteBuffer() *writeBuffer {
	return &writeBuffer{tree: btreemap.New[bufferKey, ownWrite](bufferDegree, compareBufferKeys)}
}

// write notes a write. It copies the key and the value. tooLarge says, if it is not empty, why it did nothing.
func (b *writeBuffer) write(id keys.KeyspaceID, key, value []byte, deleted bool) (tooLarge string) {
	at := bufferKey{id, key}
	_, old, there := b.tree.Get(at)
	size, replaced := b.bytes+len(key)+len(value), b.replaced
	if there {
		gone := len(key) + len(old.value)
		size -= gone
		if n := len(b.savepoints); n > 0 && old.made < b.savepoints[n-1].number {
			replaced += gone // the savepoint keeps it
		}
	}
	switch {
	case size+replaced > maxTransactionBytes:
		return "with this write the transaction holds more than 64 MiB; split it into several"
	case !there && b.tree.Len() == maxTransactionKeys:
		return "with this write the transaction holds more than 100,000 keys; split it into several"
	}
	at.key = clone(key)
	if !deleted {
		value = owned(value)
	}
	b.tree.ReplaceOrInsert(at, ownWrite{value, deleted, b.made})
	b.bytes, b.replaced = size, replaced
	return ""
}

// get returns what was written to a key.
func (b *writeBuffer) get(id keys.KeyspaceID, key []byte) (ownWrite, bool) {
	if b.tree.Len() == 0 {
		return ownWrite{}, false
	}
	_, w, there := b.tree.Get(bufferKey{id, key})
	return w, there
}

// in yields the writes of a span in order, as they are now: what is written meanwhile is not seen.
func (b *writeBuffer) in(id keys.KeyspaceID, span keys.Span, reverse bool) iter.Seq2[[]byte, ownWrite] {
	tree := b.tree
	if tree.Len() > 0 {
		tree = tree.Clone()
	}
	low, high := btreemap.GE(bufferKey{id, span.Start}), btreemap.LT(bufferKey{keyspace: id + 1})
	if len(span.End) > 0 {
		high = btreemap.LT(bufferKey{id, span.End})
	}
	return func(yield func([]byte, ownWrite) bool) {
		rows := tree.Ascend(low, high)
		if reverse {
			rows = tree.Descend(high, low)
		}
		for k, w := range rows {
			if !yield(k.key, w) {
				return
			}
		}
	}
}

// count returns how many keys of a span are written, and how many of these deleted.
func (b *writeBuffer) count(id keys.KeyspaceID, span keys.Span) (writes, deletions int) {
	if b.tree.Len() == 0 {
		return 0, 0
	}
	for _, w := range b.in(id, span, false) {
		writes++
		if w.deleted {
			deletions++
		}
	}
	return writes, deletions
}

// save makes a savepoint.
func (b *writeBuffer) save() uint64 {
	b.made++
	if len(b.savepoints) == maxSavepoints {
		b.savepoints = slices.Delete(b.savepoints, 0, 1)
	}
	b.savepoints = append(b.savepoints, savepoint{b.made, b.tree.Clone(), b.bytes, b.replaced})
	return b.made
}

// rollBack makes everything as it was at a savepoint, which stays; later ones go. It reports whether the savepoint was there.
func (b *writeBuffer) rollBack(number uint64) bool {
	i, there := slices.BinarySearchFunc(b.savepoints, number, func(s savepoint, n uint64) int { return cmp.Compare(s.number, n) })
	if !there {
		return false
	}
	s := b.savepoints[i]
	b.tree, b.bytes, b.replaced = s.tree.Clone(), s.bytes, s.replaced
	b.savepoints = slices.Delete(b.savepoints, i+1, len(b.savepoints))
	return true
}

// writes are all of them, in order. They share memory with the buffer.
func (b *writeBuffer) writes() []committer.Write {
	out := make([]committer.Write, 0, b.tree.Len())
	for k, w := range b.tree.Ascend(btreemap.Min[bufferKey](), btreemap.Max[bufferKey]()) {
		out = append(out, committer.Write{Key: committer.Key{Keyspace: k.keyspace, Key: k.key}, Value: w.value, Delete: w.deleted})
	}
	return out
}
