package kv

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Transactions of the fake cluster: nobody waits for anybody. Who meets an intent is refused with a conflict, and a commit turns all
// intents into versions at once. Requests to two nodes may overtake each other, so a Prepare may come after its transaction was aborted;
// whoever meets the intent takes it away, as whoever asks the coordinator does.

type fakeTxn struct {
	state kvpb.TransactionState
	at    hlc.Timestamp // COMMITTED: the commit timestamp; PENDING: it commits above it
}

type fakeIntent struct {
	id     string
	write  *kvpb.Mutation
	at     hlc.Timestamp
	client uint64
}

func (c *fakeCluster) txnLocked(id []byte) *fakeTxn {
	if c.txns == nil {
		c.txns = make(map[string]*fakeTxn)
	}
	t := c.txns[string(id)]
	if t == nil {
		t = &fakeTxn{}
		c.txns[string(id)] = t
	}
	return t
}

// inTheWayLocked says that an intent is another transaction's, and takes it away if that was aborted.
func (n *fakeNode) inTheWayLocked(p *fakePartition, key string, i *fakeIntent, id []byte) bool {
	if i == nil || i.id == string(id) {
		return false
	}
	if n.cluster.txnLocked([]byte(i.id)).state == kvpb.TransactionState_ABORTED {
		delete(p.intents, key)
		return false
	}
	return true
}

func either(ts *kvpb.Timestamp, c *kvpb.ReadContext) *kvpb.Timestamp {
	if ts == nil {
		return c.GetUncertainUntil()
	}
	return ts
}

// pushLocked makes sure that what is prepared in a span commits above a read.
func (n *fakeNode) pushLocked(p *fakePartition, span keys.Span, at hlc.Timestamp, reader *kvpb.ReadContext) {
	for k, i := range p.intents {
		if t := n.cluster.txnLocked([]byte(i.id)); i.id != string(reader.GetTransaction()) && span.Contains([]byte(k)) && t.state == kvpb.TransactionState_PENDING {
			t.at = hlc.Max(t.at, at)
		}
	}
}

func conflicted(key string, other []byte) *kvpb.Response {
	r := failed(kvpb.ErrorCode_TRANSACTION_CONFLICT, "a conflict over "+key)
	r.Error.Conflict = &kvpb.Conflict{Key: []byte(key), Transaction: other}
	return r
}

// changedLocked finds what was written of the reads in (reads.At, to], or may be yet.
func (n *fakeNode) changedLocked(p *fakePartition, reads *kvpb.ReadSet, to hlc.Timestamp, id []byte) *kvpb.Response {
	covers := func(key string) bool {
		return slices.ContainsFunc(reads.GetKeys(), func(k []byte) bool { return string(k) == key }) ||
			slices.ContainsFunc(reads.GetSpans(), func(s *kvpb.KeySpan) bool {
				return keys.Span{Start: s.Start, End: s.End}.Contains([]byte(key))
			})
	}
	for key, i := range p.intents {
		if covers(key) && i.write.Kind != kvpb.Mutation_LOCK && n.inTheWayLocked(p, key, i, id) {
			return conflicted(key, []byte(i.id))
		}
	}
	for key, versions := range p.versions {
		for _, v := range versions {
			if covers(key) && rpc.FromTimestamp(reads.At).Less(v.at) && v.at.LessEq(to) {
				return conflicted(key, nil)
			}
		}
	}
	return nil
}

func (n *fakeNode) refreshLocked(p *fakePartition, c *kvpb.RefreshRequest) *kvpb.Response {
	to := rpc.FromTimestamp(c.To)
	if e := n.changedLocked(p, c.Reads, to, c.Transaction); e != nil {
		return e
	}
	p.read = hlc.Max(p.read, to)
	n.given = hlc.Max(n.given, to)
	return &kvpb.Response{Result: &kvpb.Response_Refresh{Refresh: &kvpb.RefreshResponse{}}}
}

func (n *fakeNode) prepareLocked(p *fakePartition, client, sequence uint64, c *kvpb.PrepareRequest, stamp func() hlc.Timestamp) *kvpb.Response {
	id := c.Transaction.Id
	answer := func(at hlc.Timestamp, values []*kvpb.GetResponse) *kvpb.Response {
		return &kvpb.Response{Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{
			Prepared: rpc.ToTimestamp(at), Values: values, Compared: c.ReadAt != nil,
		}}}
	}
	for _, m := range c.Mutations {
		if v := p.own(string(m.Key), client, sequence); v != nil {
			return answer(v.at, nil)
		}
		if i := p.intents[string(m.Key)]; n.inTheWayLocked(p, string(m.Key), i, id) {
			return conflicted(string(m.Key), []byte(i.id))
		}
		if v := p.newest(string(m.Key)); m.Read && v != nil && rpc.FromTimestamp(c.ReadAt).Less(v.at) {
			return conflicted(string(m.Key), nil)
		}
	}
	if c.OnePhase != nil {
		if e := n.changedLocked(p, c.OnePhase.Reads, hlc.MaxTimestamp, id); e != nil {
			return e
		}
	}
	p.highest = hlc.Max(p.highest, rpc.FromTimestamp(c.AtLeast))
	at := stamp()
	if p.intents == nil {
		p.intents = make(map[string]*fakeIntent)
	}
	var values []*kvpb.GetResponse
	for _, m := range c.Mutations {
		intent := &fakeIntent{string(id), cloned(m), at, client}
		if c.OnePhase != nil {
			delete(p.intents, string(m.Key))
			p.commit(intent, at, sequence)
			continue
		}
		p.intents[string(m.Key)] = intent
		if c.ReturnValues {
			got := &kvpb.GetResponse{}
			if v := p.live(string(m.Key), hlc.MaxTimestamp); v != nil {
				got = &kvpb.GetResponse{Found: true, Value: v.value, Version: rpc.ToTimestamp(v.at)}
			}
			values = append(values, got)
		}
	}
	return answer(at, values)
}

// newest is the newest version of a key, be it a tombstone; nil if there is none.
func (p *fakePartition) newest(key string) *fakeVersion {
	versions := p.versions[key]
	if len(versions) == 0 {
		return nil
	}
	return &versions[len(versions)-1]
}

func (p *fakePartition) commit(i *fakeIntent, at hlc.Timestamp, sequence uint64) {
	if i.write.Kind != kvpb.Mutation_PUT && i.write.Kind != kvpb.Mutation_DELETE {
		return
	}
	key := string(i.write.Key)
	p.versions[key] = append(p.versions[key], fakeVersion{at: at, value: bytes.Clone(i.write.Value), tombstone: i.write.Kind == kvpb.Mutation_DELETE,
		client: i.client, sequence: sequence})
	slices.SortFunc(p.versions[key], func(a, b fakeVersion) int { return a.at.Compare(b.at) })
	p.highest = hlc.Max(p.highest, at)
}

func (n *fakeNode) endLocked(c *kvpb.EndTransactionRequest) *kvpb.Response {
	t := n.cluster.txnLocked(c.Transaction.Id)
	at := rpc.FromTimestamp(c.CommitTimestamp)
	switch {
	case t.state == kvpb.TransactionState_ABORTED && c.Commit:
		return failed(kvpb.ErrorCode_TRANSACTION_ABORTED, "it was aborted")
	case t.state != kvpb.TransactionState_PENDING:
	case c.Commit && at.LessEq(t.at):
		e := failed(kvpb.ErrorCode_TRANSACTION_PUSHED, "it was pushed")
		e.Error.Timestamp = rpc.ToTimestamp(t.at)
		return e
	default:
		t.state = kvpb.TransactionState_ABORTED
		if c.Commit {
			t.state, t.at = kvpb.TransactionState_COMMITTED, at
			n.given = hlc.Max(n.given, at)
		}
		for _, p := range n.cluster.partitions {
			for key, i := range p.intents {
				if i.id == string(c.Transaction.Id) {
					delete(p.intents, key)
					if c.Commit {
						p.commit(i, at, 0)
					}
				}
			}
		}
	}
	return &kvpb.Response{Result: &kvpb.Response_EndTransaction{EndTransaction: &kvpb.EndTransactionResponse{
		Status: &kvpb.TransactionStatus{State: t.state, Timestamp: rpc.ToTimestamp(t.at)},
	}}}
}
