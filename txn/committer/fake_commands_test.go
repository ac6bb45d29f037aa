package committer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// What the fake's servers do with requests. Whatever is called Locked runs with its mutex held.

// execute does what a request says. It waits for locks until ctx ends.
func (f *fake) execute(ctx context.Context, place Place, sequence uint64, q *Request) (*kvpb.Response, error) {
	for {
		f.mu.Lock()
		if f.ended {
			f.mu.Unlock()
			return nil, &route.Error{Cause: route.ErrClosed}
		}
		if f.refused[sequence] {
			f.mu.Unlock()
			return nil, &route.Error{Code: kvpb.ErrorCode_DEADLINE_EXCEEDED, Message: "refused before"}
		}
		response, err, wait := f.executeLocked(place, sequence, q)
		f.refused[sequence] = err != nil
		f.mu.Unlock()
		if !wait {
			return response, err
		}
		select {
		case <-ctx.Done():
			f.mu.Lock()
			f.refused[sequence] = true
			f.mu.Unlock()
			return nil, &route.Error{Code: kvpb.ErrorCode_LOCKED, Cause: ctx.Err()}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *fake) executeLocked(place Place, sequence uint64, q *Request) (response *kvpb.Response, err error, wait bool) {
	switch c := q.Command.Command.(type) {
	case *kvpb.Request_Prepare:
		return f.prepareLocked(place, sequence, c.Prepare)
	case *kvpb.Request_Refresh:
		return f.refreshLocked(place, c.Refresh)
	case *kvpb.Request_EndTransaction:
		f.participants = c.EndTransaction.Participants
		response, err = f.endLocked(c.EndTransaction)
		return response, err, false
	case *kvpb.Request_HeartbeatTransaction:
		r := f.recordLocked(c.HeartbeatTransaction.Transaction.Id)
		r.heard = time.Now()
		return &kvpb.Response{Result: &kvpb.Response_HeartbeatTransaction{HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: r.copy(), Wanted: f.wantedLater}}}, nil, false
	case *kvpb.Request_Resolve:
		for _, r := range c.Resolve.Resolutions {
			for k, l := range f.locks {
				if bytes.Equal(l.txn.Id, r.Transaction) && f.holdsLocked(place, k) {
					f.resolveLocked(k, l, r.Status)
				}
			}
		}
		return &kvpb.Response{}, nil, false
	}
	panic(fmt.Sprintf("%T", q.Command.Command))
}

// holdsLocked says whether a partition as it was holds an internal key.
func (f *fake) holdsLocked(place Place, k string) bool {
	var id keys.KeyspaceID
	var key string
	_, _ = fmt.Sscanf(k, "%d/%s", &id, &key)
	if id != place.Keyspace {
		return false
	}
	if place.Hash != AllPartitions {
		return int(keys.HashPartition([]byte(key), 4)) == place.Hash
	}
	return place.Span.Contains([]byte(key))
}

func (r *fakeRecord) copy() *kvpb.TransactionStatus {
	return &kvpb.TransactionStatus{State: r.status.State, Timestamp: r.status.Timestamp, Reason: r.status.Reason}
}

func (f *fake) recordLocked(id []byte) *fakeRecord {
	r := f.records[string(id)]
	if r == nil {
		r = &fakeRecord{heard: time.Now()}
		f.records[string(id)] = r
	}
	return r
}

func (f *fake) resolveLocked(k string, l *fakeLock, status *kvpb.TransactionStatus) {
	delete(f.locks, k)
	if status.State != kvpb.TransactionState_COMMITTED || l.kind == kvpb.Mutation_LOCK {
		return
	}
	f.writeLocked(k, fakeVersion{at: rpc.FromTimestamp(status.Timestamp), value: l.value, deleted: l.kind == kvpb.Mutation_DELETE, txn: string(l.txn.Id)})
}

func (f *fake) writeLocked(k string, v fakeVersion) {
	all := f.versions[k]
	i, there := slices.BinarySearchFunc(all, v, func(a, b fakeVersion) int { return a.at.Compare(b.at) })
	if there && all[i] == v {
		return
	}
	f.versions[k] = slices.Insert(all, i, v)
}

func (f *fake) newestLocked(k string) (v fakeVersion) {
	if all := f.versions[k]; len(all) > 0 {
		v = all[len(all)-1]
	}
	return v
}

// settledLocked says whether the lock of another transaction is out of the way. Otherwise it stays for now.
func (f *fake) settledLocked(k string, l *fakeLock, waiter *kvpb.Transaction, read hlc.Timestamp) bool {
	r := f.recordLocked(l.txn.Id)
	if r.status.State == kvpb.TransactionState_PENDING {
		heard := r.heard
		if heard.Before(l.laid) {
			heard = l.laid
		}
		older := waiter != nil && len(waiter.Anchor) > 0 && cmp.Or(rpc.FromTimestamp(waiter.Begun).Compare(rpc.FromTimestamp(l.txn.Begun)), bytes.Compare(waiter.Id, l.txn.Id)) < 0
		switch {
		case time.Since(heard) > 3*time.Second:
			r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_ABANDONED
		case !read.IsZero():
			r.status.Timestamp = rpc.ToTimestamp(hlc.Max(rpc.FromTimestamp(r.status.Timestamp), read))
			return true
		case older:
			r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_WOUNDED
		}
	}
	if r.status.State == kvpb.TransactionState_PENDING {
		return false
	}
	f.resolveLocked(k, l, r.copy())
	return true
}

func (f *fake) prepareLocked(place Place, sequence uint64, c *kvpb.PrepareRequest) (*kvpb.Response, error, bool) {
	t := c.Transaction
	if at, before := f.done[sequence]; before {
		return prepared(at, nil, false), nil, false
	}
	at := hlc.Max(hlc.Max(f.now(), f.floor.Next()), rpc.FromTimestamp(c.AtLeast))
	for _, m := range c.Mutations {
		k := internal(place.Keyspace, m.Key)
		if l := f.locks[k]; l != nil && !bytes.Equal(l.txn.Id, t.Id) {
			if m.Read && !f.earlier && !txn.ID(l.txn.Id).SameTransaction(txn.ID(t.Id)) {
				return nil, refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, string(m.Key), l.txn.Id, hlc.Timestamp{}), false
			}
			if !f.settledLocked(k, l, t, hlc.Timestamp{}) {
				return nil, nil, true
			}
		}
		newest := f.newestLocked(k)
		if m.Read && !f.earlier && rpc.FromTimestamp(c.ReadAt).Less(newest.at) {
			return nil, changed(string(m.Key)), false
		}
		at = hlc.Max(at, newest.at.Next())
	}
	if one := c.OnePhase; one != nil {
		// Another's lock on what was read may become a version below.
		for k, l := range f.locks {
			if !bytes.Equal(l.txn.Id, t.Id) && f.coversLocked(place, one.Reads, k) && !f.settledLocked(k, l, t, at) {
				return nil, nil, true
			}
		}
		if key, found := f.changedLocked(place, one.Reads, rpc.FromTimestamp(one.Reads.GetAt()), hlc.MaxTimestamp, t.Id); found {
			return nil, changed(key), false
		}
		f.floor = hlc.Max(f.floor, at)
		for _, m := range c.Mutations {
			k := internal(place.Keyspace, m.Key)
			delete(f.locks, k)
			if m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE {
				f.writeLocked(k, fakeVersion{at, string(m.Value), m.Kind == kvpb.Mutation_DELETE, string(t.Id)})
			}
		}
		f.done[sequence] = at
		return prepared(at, nil, false), nil, false
	}
	var values []*kvpb.GetResponse
	// What was prepared once stays so: a repeated request is told the same, and a late one takes nothing of a later one back.
	again := true
	told := hlc.Timestamp{}
	for _, m := range c.Mutations {
		l := f.locks[internal(place.Keyspace, m.Key)]
		if l == nil || !bytes.Equal(l.txn.Id, t.Id) || l.sequence < sequence {
			again = false
		} else {
			told = hlc.Max(told, l.prepared)
		}
	}
	if again {
		at = told
	}
	for _, m := range c.Mutations {
		k := internal(place.Keyspace, m.Key)
		if l := f.locks[k]; l == nil || !bytes.Equal(l.txn.Id, t.Id) || l.sequence < sequence {
			f.locks[k] = &fakeLock{t, at, m.Kind, string(m.Value), time.Now(), sequence}
		}
		if c.ReturnValues {
			v := f.newestLocked(k)
			got := &kvpb.GetResponse{Found: !v.at.IsZero() && !v.deleted}
			if got.Found {
				got.Value, got.Version = []byte(v.value), rpc.ToTimestamp(v.at)
			}
			values = append(values, got)
		}
	}
	answer := prepared(at, values, c.ReadAt != nil && !f.earlier)
	answer.GetPrepare().Crowded, answer.GetPrepare().Wanted = f.crowded && c.Patient, f.wanted && c.Patient
	return answer, nil, false
}

func prepared(at hlc.Timestamp, values []*kvpb.GetResponse, compared bool) *kvpb.Response {
	return &kvpb.Response{Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{
		Prepared: rpc.ToTimestamp(at), Values: values, Compared: compared,
	}}}
}

func (f *fake) coversLocked(place Place, reads *kvpb.ReadSet, k string) bool {
	for _, key := range reads.GetKeys() {
		if internal(place.Keyspace, key) == k {
			return true
		}
	}
	for _, s := range reads.GetSpans() {
		if f.holdsLocked(place, k) && (keys.Span{Start: s.Start, End: s.End}).Contains([]byte(k[2:])) {
			return true
		}
	}
	return false
}

// changedLocked finds a key that was read here and written in (from, to] by somebody else.
func (f *fake) changedLocked(place Place, reads *kvpb.ReadSet, from, to hlc.Timestamp, id []byte) (key string, found bool) {
	for k, all := range f.versions {
		for _, v := range all {
			if from.Less(v.at) && v.at.LessEq(to) && v.txn != string(id) && f.coversLocked(place, reads, k) {
				return k[2:], true
			}
		}
	}
	return "", false
}

// changed says that a key was written since it was read. Servers do not know by whom: a version does not say.
func changed(key string) error {
	return refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, key, nil, hlc.Timestamp{})
}

func (f *fake) refreshLocked(place Place, c *kvpb.RefreshRequest) (*kvpb.Response, error, bool) {
	f.refreshed = append(f.refreshed, proto.Clone(c).(*kvpb.RefreshRequest))
	to := rpc.FromTimestamp(c.To)
	if f.aheadLocked(to) {
		return nil, refuse(kvpb.ErrorCode_TIMESTAMP_IN_FUTURE, "", nil, hlc.Timestamp{}), false
	}
	for k, l := range f.locks {
		if !bytes.Equal(l.txn.Id, c.Transaction) && f.coversLocked(place, c.Reads, k) && l.prepared.LessEq(to) && !f.settledLocked(k, l, nil, to) {
			return nil, nil, true
		}
	}
	if key, found := f.changedLocked(place, c.Reads, rpc.FromTimestamp(c.Reads.At), to, c.Transaction); found {
		return nil, changed(key), false
	}
	f.floor = hlc.Max(f.floor, to)
	return &kvpb.Response{}, nil, false
}

func (f *fake) endLocked(c *kvpb.EndTransactionRequest) (*kvpb.Response, error) {
	r := f.recordLocked(c.Transaction.Id)
	at := rpc.FromTimestamp(c.CommitTimestamp)
	if c.Commit && f.aheadLocked(at) {
		return nil, refuse(kvpb.ErrorCode_CLOCK_SKEW, "", nil, hlc.Timestamp{})
	}
	if c.Commit && f.pushes > 0 {
		f.pushes--
		r.status.Timestamp = rpc.ToTimestamp(hlc.Max(rpc.FromTimestamp(r.status.Timestamp), f.now().Add(f.pushAhead)))
	}
	switch {
	case r.status.State == kvpb.TransactionState_ABORTED && c.Commit:
		return nil, &route.Error{Code: kvpb.ErrorCode_TRANSACTION_ABORTED, Conflict: &kvpb.Conflict{Reason: r.status.Reason}}
	case r.status.State != kvpb.TransactionState_PENDING:
	case !c.Commit:
		r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_ROLLED_BACK
	case at.LessEq(rpc.FromTimestamp(r.status.Timestamp)):
		return nil, refuse(kvpb.ErrorCode_TRANSACTION_PUSHED, "", nil, rpc.FromTimestamp(r.status.Timestamp))
	default:
		r.status.State, r.status.Timestamp = kvpb.TransactionState_COMMITTED, c.CommitTimestamp
	}
	return &kvpb.Response{Result: &kvpb.Response_EndTransaction{EndTransaction: &kvpb.EndTransactionResponse{Status: r.copy()}}}, nil
}
