package replica

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// The lock table follows the engine on every replica: what an entry does to locks is done to the
// table once it can be read from the engine, and what New or a snapshot finds there makes a new
// table. So a replica that comes to lead knows what is locked.

// lockState is what the table keeps of a stored lock.
func lockState(l *txn.Lock) concurrency.State {
	return concurrency.State{Kind: l.Kind, Prepared: l.Prepared, Request: l.Request,
		Acquired: l.Acquired,
		Size:     len(l.Value)}
}

// transaction checks an operation of a transaction's entry, and notes what it changes.
func (c *changes) transaction(d *clusterpb.Partition, p *proposal.Entry, deletion bool, key,
	value []byte) error {
	span := keys.PartitionSpan(d)
	if keys.IsData(key) {
		internalKey, ts, err := keys.DecodeVersioned(key)
		if err != nil {
			return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
		}
		if deletion {
			return fmt.Errorf("%w: the removal of version %s in a transaction's entry",
				proposal.ErrMalformed, keys.PrettyState(key))
		}
		if err := checkVersion(span, key, internalKey, ts, p); err != nil {
			return err
		}
		h, _, err := mvcc.DecodeHeader(value)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", proposal.ErrMalformed, keys.PrettyState(key), err)
		}
		c.versions = append(c.versions,
			versionChange{key: string(keys.UserKey(d, internalKey)), timestamp: ts,
				tombstone: h.Kind == mvcc.KindTombstone, expires: h.Expires != 0, waits: h.CommitWait})
		return nil
	}
	internalKey, suffix, err := keys.DecodeAnchorKey(key)
	if err != nil || !span.Contains(internalKey) {
		return fmt.Errorf("%w: %s is neither a version nor an anchored record of the span %s",
			proposal.ErrMalformed, keys.PrettyState(key), span)
	}
	switch of, _ := txn.Classify(suffix); {
	case of == txn.AnchoredLock && deletion:
		c.locks = append(c.locks,
			concurrency.Change{Key: string(keys.UserKey(d, internalKey)), Released: true})
	case of == txn.AnchoredLock:
		l, err := txn.DecodeLock(value)
		if err == nil && p.Highest.Less(l.Prepared) {
			err = fmt.Errorf("prepared at %s, above the entry's highest timestamp %s",
				l.Prepared, p.Highest)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", proposal.ErrMalformed, keys.PrettyState(key), err)
		}
		c.locks = append(c.locks,
			concurrency.Change{Key: string(keys.UserKey(d, internalKey)), Of: l.Transaction,
				State: lockState(&l)})
	case deletion:
		return fmt.Errorf("%w: the removal of %s in a transaction's entry", proposal.ErrMalformed,
			keys.PrettyState(key))
	case of == txn.AnchoredRecord:
		if _, err := txn.DecodeRecord(value); err != nil {
			return fmt.Errorf("%w: %s: %w", proposal.ErrMalformed, keys.PrettyState(key), err)
		}
		c.records = true
	}
	return nil
}

// anchored is what a partition has in its anchor span of transactions.
type anchored struct {
	locks   []concurrency.Change
	records bool
}

// readAnchored reads the locks of a partition.
func readAnchored(state engine.Reader, d *clusterpb.Partition) (found anchored, err error) {
	span := keys.AnchorSpan(keys.PartitionSpan(d))
	err = storage.Each(state, span, func(i *pebble.Iterator) (bool, error) {
		internalKey, suffix, err := keys.DecodeAnchorKey(i.Key())
		if err != nil {
			return false, fmt.Errorf("%w: %w", storage.ErrRecord, err)
		}
		switch of, _ := txn.Classify(suffix); of {
		case txn.AnchoredRecord:
			found.records = true
		case txn.AnchoredLock:
			value, err := i.ValueAndErr()
			if err != nil {
				return false, err
			}
			l, err := txn.DecodeLock(value)
			if err != nil {
				return false, fmt.Errorf("%w: %s: %w", storage.ErrRecord, keys.PrettyState(i.Key()), err)
			}
			found.locks = append(found.locks, concurrency.Change{
				Key: string(keys.UserKey(d, internalKey)), Of: l.Transaction, State: lockState(&l)})
		}
		return true, nil
	})
	return found, err
}
