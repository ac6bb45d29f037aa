package replica

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// The lock table follows the engine on every replica: a change of a lock enters the table once it
// can be read from the engine, and New and a snapshot make the table anew from the engine. So a
// replica that becomes leader knows which keys are locked.

// lockState returns what the lock table keeps of a stored lock.
func lockState(l *txn.Lock) concurrency.State {
	return concurrency.State{Kind: l.Kind, Prepared: l.Prepared, Request: l.Request,
		Acquired: l.Acquired,
		Size:     len(l.Value)}
}

// transaction checks an operation of a transaction's entry, and notes its changes.
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
			eval.OwnVersion{Key: string(keys.UserKey(d, internalKey)), Known: proposal.Known{Timestamp: ts,
				Live: h.Kind != mvcc.KindTombstone, CommitWait: h.CommitWait, Expires: h.Expires != 0}})
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

// anchored holds what a partition stores in its anchor span for transactions.
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

// applications counts the batches that replicas apply, for checkInvariantState.
var applications invariants.Every

// checkInvariantState compares what is kept about a partition in memory with its state. It checks
// only every few batches, and only what is small. The caller holds applying.
func checkInvariantState(r *Replica) {
	if !applications.Due(32) {
		return
	}
	d := r.Descriptor()
	r.m.Mu.Lock()
	stats := r.m.Mu.Applied.Stats
	r.m.Mu.Unlock()
	if stats.Versions <= 16*invariants.Small {
		counted, err := storage.CountVersions(r.state, keys.PartitionSpan(d),
			func() error { return nil })
		invariants.Check(err != nil || counted == stats,
			"partition %s: the statistics are %+v, and a count finds %+v", r.id, stats, counted)
	}
	found, err := readAnchored(r.state, d)
	if err != nil {
		return
	}
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	stored := make(map[string]bool, len(found.locks))
	for _, l := range found.locks {
		stored[l.Key] = true
		has := r.m.Mu.Locks.Get(l.Key)
		invariants.Check(has != nil && has.Applied != nil && !has.Applied.Volatile &&
			has.Transaction.Same(&l.Of) && has.Applied.Prepared == l.State.Prepared,
			"partition %s: the lock of %q by transaction %s is in the state, and not in the table", r.id,
			l.Key, l.Of.ID)
	}
	r.m.Mu.Locks.Each("", "", func(l *concurrency.Lock) bool {
		invariants.Check(l.Applied == nil || l.Applied.Volatile || stored[l.Key],
			"partition %s: the lock of %q is in the table, and not in the state", r.id, l.Key)
		return true
	})
}

// checkInvariantAdvance compares the applied record of a partition with the previous record.
func checkInvariantAdvance(id keys.PartitionID, before, after *storage.Record) {
	invariants.Check(after.Index >= before.Index && after.Term >= before.Term,
		"partition %s: entry %d of term %d is applied after entry %d of term %d", id, after.Index,
		after.Term, before.Index, before.Term)
	invariants.Check(before.Closed.LessEq(after.Closed), "partition %s: %s is closed after %s", id,
		after.Closed, before.Closed)
	invariants.Check(before.Threshold.LessEq(after.Threshold),
		"partition %s: the garbage collection threshold falls from %s to %s", id, before.Threshold,
		after.Threshold)
	invariants.Check(before.Highest.LessEq(after.Highest),
		"partition %s: the highest timestamp falls from %s to %s", id, before.Highest, after.Highest)
}

// checkInvariantClosed checks that a version is above the closed timestamp.
func checkInvariantClosed(key []byte, closed hlc.Timestamp) {
	_, ts, err := keys.DecodeVersioned(key)
	invariants.Check(err != nil || ts.IsZero() || closed.Less(ts),
		"%s is written, and %s is closed", keys.PrettyState(key), closed)
}

// checkInvariantDecision checks that a transaction record with the state COMMITTED or ABORTED keeps
// that state.
func checkInvariantDecision(state engine.Reader, key, value []byte) {
	_, suffix, err := keys.DecodeAnchorKey(key)
	if err != nil {
		return
	}
	if of, _ := txn.Classify(suffix); of != txn.AnchoredRecord {
		return
	}
	stored, closer, err := state.Get(key)
	if err != nil {
		return
	}
	defer closer.Close()
	before, err := txn.DecodeRecord(stored)
	if err != nil || !before.Decided() {
		return
	}
	after, err := txn.DecodeRecord(value)
	invariants.Check(err == nil && after.State == before.State && after.Timestamp == before.Timestamp,
		"the record %s says %s at %s after %s at %s", keys.PrettyState(key), after.State,
		after.Timestamp, before.State, before.Timestamp)
}
