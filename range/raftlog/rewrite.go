package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// Rewrite describes how the log of a replica begins anew: empty, behind an entry that the state
// database has applied durably.
type Rewrite struct {
	// Identity is the replica's new identity: its present one, or one with a higher id that
	// replaces it.
	Identity Identity
	// Index and Term describe the last applied entry.
	Index, Term uint64
	// HardTerm is the term that the replica is in, without a vote. It is above every term in which
	// the replica has voted.
	HardTerm uint64
}

// Rewrite replaces the logs of replicas, all with one sync, or none. It is for tools that work on a
// database that no server uses: no group may be open. Repeating a rewrite is harmless.
func (l *Log) Rewrite(rewrites ...Rewrite) error {
	batch := l.db.NewBatch()
	defer batch.Close()
	for _, r := range rewrites {
		id := r.Identity
		old, exists, err := l.readIdentity(id.Group)
		switch {
		case err != nil:
			return err
		case !exists || old.Removed || id.Removed || id.Replica < old.Replica:
			return fmt.Errorf("group %s: the log of replica %s cannot be rewritten as that of "+
				"replica %s: %w",
				id.Group, old.Replica, id.Replica, ErrRemoved)
		}
		commit := r.Index
		hard := &raftpb.HardState{Term: &r.HardTerm, Commit: &commit}
		set := func(kind byte, value []byte) {
			if err == nil {
				err = batch.Set(appendGroupKey(nil, id.Group, kind), value, nil)
			}
		}
		err = batch.DeleteRange(appendEntryKey(nil, id.Group, 0),
			appendGroupKey(nil, id.Group, kindEntry+1), nil)
		set(kindTruncated, encodeTruncation(truncation{r.Index, r.Term}))
		set(kindHardState, encodeHardState(hard))
		set(kindIdentity, encodeIdentity(id))
		if err != nil {
			return err
		}
	}
	if batch.Empty() {
		return nil
	}
	if err := l.db.Commit(batch, true); err != nil {
		return fmt.Errorf("rewriting the logs of %d replicas: %w", len(rewrites), err)
	}
	return nil
}
