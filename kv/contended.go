package kv

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// maxContended bounds the keys that one transaction locks because of earlier attempts.
	maxContended = 1000
	// maxAhead is up to how many of them an attempt locks before its function runs.
	maxAhead = 16
)

// contention is what earlier attempts of a transaction have failed over. A transaction that has to run again probably reads and writes the
// same keys again. So they are locked before they are read: it waits for its turn first, and then runs with what nobody else changes. If
// they are few, all of them are locked before the function runs, in their order, so that of two transactions that do so neither has
// what the other one waits for. The zero contention is none.
type contention struct {
	keys map[string]bufferKey
}

func contendedKey(ks keys.KeyspaceID, key []byte) string { return ks.String() + "/" + string(key) }

func (c *contention) has(ks keys.KeyspaceID, key []byte) bool {
	if len(c.keys) == 0 {
		return false
	}
	_, there := c.keys[contendedKey(ks, key)]
	return there
}

// add takes in a key.
func (c *contention) add(ks keys.KeyspaceID, key []byte) {
	if len(c.keys) >= maxContended {
		return
	}
	if c.keys == nil {
		c.keys = make(map[string]bufferKey)
	}
	if m := contendedKey(ks, key); c.keys[m].key == nil {
		c.keys[m] = bufferKey{ks, clone(key)}
	}
}

// noteContended remembers what an attempt that failed has read and written, if that is not too much; otherwise the key over which it has
// failed, if it has written that.
func (t *Txn) noteContended(err error) {
	if t.writes.tree.Len() <= maxContended {
		if known := t.transaction.Known(t.writes.writes(), t.reads()); len(known) <= maxAhead {
			for _, k := range known {
				t.contended.add(k.Keyspace, k.Key)
			}
		}
	}
	e := asError(err)
	if e == nil || len(e.Key) == 0 {
		return
	}
	ks := t.client.sender.Table().KeyspaceByName(e.Keyspace)
	if ks == nil {
		return
	}
	if _, written := t.writes.get(ks.ID, e.Key); written {
		t.contended.add(ks.ID, e.Key)
	}
}

// lockAhead locks what earlier attempts have failed over, if it is not too much.
func (t *Txn) lockAhead(ctx context.Context) error {
	all := t.contended.keys
	if len(all) == 0 || len(all) > maxAhead {
		return nil
	}
	ctx, cancel := t.client.bound(ctx)
	defer cancel()
	sorted := make([]bufferKey, 0, len(all))
	for _, k := range all {
		sorted = append(sorted, k)
	}
	slices.SortFunc(sorted, compareBufferKeys)
	t.ahead = make(map[string]Pair, len(sorted))
	for _, k := range sorted {
		ks := t.client.sender.Table().KeyspaceByID(k.keyspace)
		if ks == nil {
			continue // it is dropped, which the function will find
		}
		p, err := t.lock(ctx, ks, k.key)
		if err != nil {
			return t.fail("update", ks.Info.Name, k.key, err)
		}
		t.ahead[contendedKey(k.keyspace, k.key)] = p
	}
	return nil
}
