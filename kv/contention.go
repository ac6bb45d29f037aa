package kv

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

const (
	// maxContended bounds the keys that one transaction locks because of earlier attempts.
	maxContended = 1000
	// maxNoted is how many keys an attempt may have read and written for all of them to be taken
	// for contended. Of a larger one it is those that attempts have failed over.
	maxNoted = 100
	// maxAhead is how many of them an attempt locks before its function runs.
	maxAhead = 16
)

// contention is what earlier attempts of a transaction have failed over. A transaction that has to
// run again probably reads and writes the same keys again. So they are locked before they are read:
// it waits for its turn first, and then runs with what no other transaction changes. The first of
// them, in the order of the keys, are locked before the function runs, one after the other, so that
// of two transactions that do so neither has what the other one waits for. (What is locked later is
// above all of these.) The zero contention is none.
type contention struct {
	keys map[string]*contended
}

// contended is a key, and the latest attempt that has read or written it, or failed over it.
type contended struct {
	writes.Key
	attempt int
}

func contendedKey(ks keys.KeyspaceID, key []byte) string { return ks.String() + "/" + string(key) }

// meets says, of a key that an attempt reads, whether it is one of them.
func (c *contention) meets(ks keys.KeyspaceID, key []byte, attempt int) bool {
	if len(c.keys) == 0 {
		return false
	}
	k := c.keys[contendedKey(ks, key)]
	if k != nil {
		k.attempt = attempt
	}
	return k != nil
}

// add takes in a key.
func (c *contention) add(ks keys.KeyspaceID, key []byte, attempt int) {
	m := contendedKey(ks, key)
	switch k := c.keys[m]; {
	case k != nil:
		k.attempt = attempt
	case len(c.keys) < maxContended:
		if c.keys == nil {
			c.keys = make(map[string]*contended)
		}
		c.keys[m] = &contended{writes.Key{Keyspace: ks, Key: clone(key)}, attempt}
	}
}

// noteContended remembers what an attempt that failed has read and written, if that is not too
// much; otherwise the key over which it has failed, if it has written that. If it had come to its
// end it forgets what the attempt has neither read nor written: a transaction that takes the first
// element of a queue does not want those back that others have taken.
func (t *Txn) noteContended(err error) {
	if t.ended && !t.rolledBack {
		maps.DeleteFunc(t.contended.keys, func(_ string, k *contended) bool {
			_, written := t.writes.Get(k.Keyspace, k.Key.Key)
			return !written && k.attempt < t.attempt
		})
	}
	if t.writes.Len() <= maxContended {
		if known := t.transaction.Known(t.writes.All(), t.reads()); len(known) <= maxNoted {
			for _, k := range known {
				t.contended.add(k.Keyspace, k.Key, t.attempt)
			}
		}
	}
	e := asError(err)
	if e == nil || len(e.Key) == 0 {
		return
	}
	ks := t.client.conn.Sender.Table().KeyspaceByName(e.Keyspace)
	if ks == nil {
		return
	}
	if _, written := t.writes.Get(ks.ID, e.Key); written {
		t.contended.add(ks.ID, e.Key, t.attempt)
	}
}

// lockAhead holds and locks what earlier attempts have failed over, or the first of it. again says
// that it failed over a keyspace that was dropped, of
// which it locks nothing the next time: whether that matters is for the function to say.
func (t *Txn) lockAhead(ctx context.Context) (err error, again bool) {
	if err := t.holdAhead(ctx); err != nil {
		err = t.fail("update", "", nil, err)
		return err, errors.Is(err, ErrKeyspaceNotFound)
	}
	if len(t.contended.keys) == 0 {
		return nil, false
	}
	ctx, cancel := t.client.conn.Bound(ctx)
	defer cancel()
	sorted := make([]writes.Key, 0, len(t.contended.keys))
	for _, k := range t.contended.keys {
		sorted = append(sorted, k.Key)
	}
	slices.SortFunc(sorted, writes.Compare)
	sorted = sorted[:min(len(sorted), maxAhead)]
	t.ahead = make(map[string]Pair, len(sorted))
	for _, k := range sorted {
		ks := t.client.conn.Sender.Table().KeyspaceByID(k.Keyspace)
		if ks == nil {
			continue // it is dropped, which the function will find
		}
		if t.holds(ks, k.Key) {
			continue
		}
		p, err := t.lock(ctx, ks, k.Key)
		if err != nil {
			err = t.fail("update", ks.Info.Name, k.Key, err)
			if again = errors.Is(err, ErrKeyspaceNotFound); again {
				maps.DeleteFunc(t.contended.keys, func(_ string, of *contended) bool {
					return of.Keyspace == k.Keyspace
				})
			}
			return err, again
		}
		t.ahead[contendedKey(k.Keyspace, k.Key)] = p
	}
	return nil, false
}

// lockContended locks those of several keys that earlier attempts have failed over, one after the
// other in their order, and returns their pairs, and those of keys that were locked ahead. One
// request for several keys would acquire all of its locks at once or none: it would wait until all
// of them are free at one moment, which under load may never come.
func (t *Txn) lockContended(ctx context.Context, ks *route.Keyspace,
	userKeys [][]byte) (map[string]Pair, error) {
	var pairs map[string]Pair
	var wanted [][]byte
	for _, key := range userKeys {
		if !t.contended.meets(ks.ID, key, t.attempt) || t.holds(ks, key) {
			continue
		}
		if _, written := t.writes.Get(ks.ID, key); written {
			continue
		}
		if pairs == nil {
			pairs = make(map[string]Pair)
		}
		if p, known := t.ahead[contendedKey(ks.ID, key)]; known {
			pairs[string(key)] = p
		} else if !t.set.IsLocked(ks.ID, key) {
			wanted = append(wanted, key)
		}
	}
	slices.SortFunc(wanted, bytes.Compare)
	for _, key := range slices.CompactFunc(wanted, bytes.Equal) {
		p, err := t.lock(ctx, ks, key)
		if err != nil {
			return nil, err
		}
		pairs[string(key)] = p
	}
	return pairs, nil
}
