package writes

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
	// MaxKeys and MaxBytes bound the writes of one transaction.
	MaxKeys  = 100_000
	MaxBytes = 64 << 20
	// maxSavepoints bounds the savepoints; beyond it the oldest is dropped.
	maxSavepoints = 1000
	// bufferDegree is the degree of the B-tree.
	bufferDegree = 16
)

// Key is a key of a keyspace. Compare orders the writes of a transaction.
type Key struct {
	Keyspace keys.KeyspaceID
	Key      []byte
}

// Compare orders keys by keyspace, and then by their bytes.
func Compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), bytes.Compare(a.Key, b.Key))
}

// Own is the transaction's own write of a key.
type Own struct {
	Value   []byte
	Deleted bool
	// Lifetime is the lifetime of the value.
	Lifetime keys.Lifetime
	// made is the value of Buffer.made at the time of the write.
	made uint64
}

// Buffer holds the writes of a transaction, by key. Savepoints are copies of it that share
// unchanged parts.
type Buffer struct {
	tree *btreemap.BTreeMap[Key, Own]
	// bytes is the size of keys and values; replaced is the size of values that only savepoints
	// hold.
	bytes, replaced int

	savepoints []savepoint
	// made counts all savepoints ever made.
	made uint64
}

type savepoint struct {
	number          uint64
	tree            *btreemap.BTreeMap[Key, Own]
	bytes, replaced int
}

// New makes an empty buffer.
func New() *Buffer {
	return &Buffer{tree: btreemap.New[Key, Own](bufferDegree, Compare)}
}

// Put adds a write. It copies the key and the value. A tooLarge that is not empty is the reason why
// nothing was added.
func (b *Buffer) Put(id keys.KeyspaceID, key []byte, own Own) (tooLarge string) {
	at := Key{id, key}
	_, old, there := b.tree.Get(at)
	size, replaced := b.bytes+len(key)+len(own.Value), b.replaced
	if there {
		gone := len(key) + len(old.Value)
		size -= gone
		if n := len(b.savepoints); n > 0 && old.made < b.savepoints[n-1].number {
			replaced += gone // the savepoint keeps it
		}
	}
	switch {
	case size+replaced > MaxBytes:
		return "with this write the transaction holds more than 64 MiB; split it into several"
	case !there && b.tree.Len() == MaxKeys:
		return "with this write the transaction holds more than 100,000 keys; split it into several"
	}
	at.Key = bytes.Clone(key)
	if !own.Deleted {
		own.Value = append([]byte{}, own.Value...) // an empty value is a value
	}
	own.made = b.made
	b.tree.ReplaceOrInsert(at, own)
	b.bytes, b.replaced = size, replaced
	return ""
}

// Get returns the write of a key.
func (b *Buffer) Get(id keys.KeyspaceID, key []byte) (Own, bool) {
	if b.tree.Len() == 0 {
		return Own{}, false
	}
	_, w, there := b.tree.Get(Key{id, key})
	return w, there
}

// In yields the present writes in a span, in order. It does not see later writes.
func (b *Buffer) In(id keys.KeyspaceID, span keys.Span, reverse bool) iter.Seq2[[]byte, Own] {
	tree := b.tree
	if tree.Len() > 0 {
		tree = tree.Clone()
	}
	low, high := btreemap.GE(Key{id, span.Start}), btreemap.LT(Key{Keyspace: id + 1})
	if len(span.End) > 0 {
		high = btreemap.LT(Key{id, span.End})
	}
	return func(yield func([]byte, Own) bool) {
		rows := tree.Ascend(low, high)
		if reverse {
			rows = tree.Descend(high, low)
		}
		for k, w := range rows {
			if !yield(k.Key, w) {
				return
			}
		}
	}
}

// Count returns the number of written keys in a span, and the number of deletions among them.
func (b *Buffer) Count(id keys.KeyspaceID, span keys.Span) (writes, deletions int) {
	if b.tree.Len() == 0 {
		return 0, 0
	}
	for _, w := range b.In(id, span, false) {
		writes++
		if w.Deleted {
			deletions++
		}
	}
	return writes, deletions
}

// Save makes a savepoint.
func (b *Buffer) Save() uint64 {
	b.made++
	if len(b.savepoints) == maxSavepoints {
		b.savepoints = slices.Delete(b.savepoints, 0, 1)
	}
	b.savepoints = append(b.savepoints, savepoint{b.made, b.tree.Clone(), b.bytes, b.replaced})
	return b.made
}

// RollBack restores the state of a savepoint, and removes later savepoints. It returns false if the
// savepoint does not exist.
func (b *Buffer) RollBack(number uint64) bool {
	i, there := slices.BinarySearchFunc(b.savepoints, number, func(s savepoint, n uint64) int {
		return cmp.Compare(s.number, n)
	})
	if !there {
		return false
	}
	s := b.savepoints[i]
	b.tree, b.bytes, b.replaced = s.tree.Clone(), s.bytes, s.replaced
	b.savepoints = slices.Delete(b.savepoints, i+1, len(b.savepoints))
	return true
}

// All returns all writes, in order. They share memory with the buffer.
func (b *Buffer) All() []committer.Write {
	out := make([]committer.Write, 0, b.tree.Len())
	for k, w := range b.tree.Ascend(btreemap.Min[Key](), btreemap.Max[Key]()) {
		out = append(out, committer.Write{Key: committer.Key{Keyspace: k.Keyspace, Key: k.Key},
			Value: w.Value, Delete: w.Deleted, Lifetime: w.Lifetime})
	}
	return out
}

// Len is the number of written keys.
func (b *Buffer) Len() int { return b.tree.Len() }

// Bytes is the size of keys and values.
func (b *Buffer) Bytes() int { return b.bytes }
