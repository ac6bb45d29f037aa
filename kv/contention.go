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
	// maxContended limits the keys that one transaction locks because of earlier attempts.
	maxContended = 1000
	// maxNoted is a limit on the keys of an attempt. If an attempt has read and written at most this
	// many keys, all of them count as contended. Otherwise only the keys of its conflicts do.
	maxNoted = 100
	// maxAhead limits the contended keys that an attempt locks before its function runs.
	maxAhead = 16
)

// contention has the keys over which earlier attempts of a transaction have failed. A transaction
// that runs again probably reads and writes the same keys. So it locks these keys before it reads
// them: it waits for its turn, and then no other transaction changes the keys while it runs. The
// first of the keys, in key order, are locked before the function runs, one after the other. So of
// two such transactions neither holds a lock that the other waits for. (Keys that are locked later
// are above all of these.) The zero contention is empty.
type contention struct {
	keys map[string]*contended
}

// contended is a key, with the latest attempt that has read or written it, or failed over it.
type contended struct {
	writes.Key
	attempt int
}

func contendedKey(ks keys.KeyspaceID, key []byte) string { return ks.String() + "/" + string(key) }

// meets reports whether a key that an attempt reads is contended.
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

// add adds a key.
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

// noteContended remembers the keys that a failed attempt has read and written, if there are not too
// many. Otherwise it remembers the key over which the attempt failed, if the attempt has written
// that key. If the attempt ran to its end, keys that it has neither read nor written are forgotten:
// a transaction that takes the first element of a queue does not want elements that others have
// taken.
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

// lockAhead holds spans and locks keys over which earlier attempts have failed. again reports that
// it failed because a keyspace was dropped. The next attempt locks nothing in that keyspace, and
// the function decides whether the drop matters.
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
			continue // the keyspace was dropped, which the function will find
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

// lockContended locks the keys over which earlier attempts have failed, one after the other in key
// order. It returns their pairs, and the pairs of keys that were locked ahead. A single request for
// several keys would acquire all of its locks at once or none: it would wait until all of them are
// free at one moment, which may never come under load.
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
