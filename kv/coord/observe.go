package coord

import (
	"context"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Leader is the candidate that leads an election.
type Leader struct {
	// Key is the key of the leader. It is empty if there is no leader.
	Key string
	// Token is the leader's fencing number.
	Token Token
	// Proposal is the leader's proposal, or its last proclamation.
	Proposal []byte
	// Revision is the revision of the change that made the candidate the leader or changed its
	// proposal, or of the read that found the leader.
	Revision int64
	// Gap is set if the service could not provide the changes before this one. There may have been
	// other leaders since the previously yielded one.
	Gap bool
}

// Exists reports whether there is a leader.
func (l Leader) Exists() bool { return l.Key != "" }

// Leader returns the present leader. It returns no error if there is none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	const op = "ask for the leader"
	if err := checkName(op, e.name); err != nil {
		return Leader{}, err
	}
	r, err := e.client.get(ctx, e.prefix(), clientv3.WithFirstCreate()...)
	if err != nil {
		return Leader{}, fail(op, e.name, err)
	}
	if len(r.Kvs) == 0 {
		return Leader{Revision: r.Header.Revision}, nil
	}
	return leaderOf(r.Kvs[0], r.Header.Revision), nil
}

func leaderOf(kv *mvccpb.KeyValue, revision int64) Leader {
	return Leader{Key: string(kv.Key), Token: Token(kv.CreateRevision), Proposal: kv.Value,
		Revision: revision}
}

// Observe yields the leader, and then every change of the leader or its proposal, in order,
// including a change to no leader. It misses no leader, however short the leadership, as long as
// the service has the history. If the history was compacted while the client was disconnected, the
// next leader has Gap set. Observe ends with ctx, or after an error.
//
// The loop's body should be quick: changes that are not yielded yet are kept in memory.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	const op = "observe"
	return func(yield func(Leader, error) bool) {
		if err := checkName(op, e.name); err != nil {
			yield(Leader{}, err)
			return
		}
		var known candidates
		for change, err := range e.client.changes(ctx, e.prefix()) {
			if err != nil {
				yield(Leader{}, fail(op, e.name, err))
				return
			}
			if leader, changed := known.apply(change); changed && !yield(leader, nil) {
				return
			}
		}
	}
}

// candidates has all candidates as of a revision.
type candidates struct {
	begun bool
	all   map[string]*mvccpb.KeyValue
	// leader is the key of the present leader. modified is the revision at which its proposal was last
	// written.
	leader   string
	created  int64
	modified int64
}

// apply applies a change, and returns the present leader if the leader or its proposal has changed.
func (c *candidates) apply(change change) (Leader, bool) {
	if change.whole {
		c.all = make(map[string]*mvccpb.KeyValue, len(change.state))
		for _, kv := range change.state {
			c.all[string(kv.Key)] = kv
		}
	}
	for _, event := range change.events {
		if event.Type == clientv3.EventTypeDelete {
			delete(c.all, string(event.Kv.Key))
		} else {
			c.all[string(event.Kv.Key)] = event.Kv
		}
	}
	first := c.first()
	var leader Leader
	modified := int64(0)
	if first != nil {
		leader, modified = leaderOf(first, change.revision), first.ModRevision
	}
	same := c.begun && leader.Key == c.leader && int64(leader.Token) == c.created
	if same && modified == c.modified {
		// The same candidate has led all the time. But if there was no leader before and there is none
		// now, there may have been leaders in between.
		if !change.whole || first != nil {
			return Leader{}, false
		}
	}
	leader.Revision = change.revision
	leader.Gap = c.begun && change.whole && !(same && first != nil)
	c.begun, c.leader, c.created, c.modified = true, leader.Key, int64(leader.Token), modified
	return leader, true
}

// first returns the oldest candidate; nil if there is none.
func (c *candidates) first() (first *mvccpb.KeyValue) {
	if kv := c.all[c.leader]; kv != nil && kv.CreateRevision == c.created {
		return kv // a later key of the candidate has a higher revision
	}
	for _, kv := range c.all {
		if first == nil || kv.CreateRevision < first.CreateRevision {
			first = kv
		}
	}
	return first
}
