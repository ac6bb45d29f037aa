package replica

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

const (
	// defaultInspected and maxInspected bound how many transactions an inspection shows.
	defaultInspected = 100
	maxInspected     = 10_000
)

// inspectTransactions shows the transactions that have locks here, the ones with the oldest locks first, and who waits for them. Only
// the leader knows; what it says is for people, so nothing is proved.
func (r *Replica) inspectTransactions(q *kvpb.Request) *kvpb.Response {
	only := q.GetInspectTransactions().GetTransaction()
	most := defaultInspected
	if n := q.GetInspectTransactions().GetMax(); n != 0 {
		most = int(min(n, maxInspected))
	}
	m := &kvpb.InspectTransactionsResponse{}
	var anchors []txn.Info
	now, physical := time.Now(), r.node.Clock.Physical()
	r.mu.Lock()
	if !r.mu.serving {
		r.mu.Unlock()
		return r.notLeader(q)
	}
	r.mu.locks.EachTransaction(func(x *locks.Transaction[*parked]) bool {
		if len(only) > 0 && !bytes.Equal(only, x.ID[:]) {
			return true
		}
		live, of := r.liveTransactionLocked(x, now, physical)
		m.Transactions = append(m.Transactions, live)
		anchors = append(anchors, of)
		return true
	})
	r.mu.Unlock()
	if len(only) > 0 && len(anchors) == 0 {
		aborted, err := r.requestedAbort(only)
		switch {
		case err != nil:
			return r.readError(q, err)
		case aborted != nil:
			m.Transactions = append(m.Transactions, aborted)
		}
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_InspectTransactions{InspectTransactions: m}}
	}
	order := make([]int, len(anchors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := m.Transactions[a], m.Transactions[b]
		return cmp.Or(cmp.Compare(y.OldestMicros, x.OldestMicros), bytes.Compare(x.Transaction.Id, y.Transaction.Id))
	})
	if len(order) > most {
		order, m.More = order[:most], true
	}
	shown := make([]*kvpb.LiveTransaction, len(order))
	d := r.Descriptor()
	for i, at := range order {
		shown[i] = m.Transactions[at]
		of := anchors[at]
		if uint32(of.Keyspace) != d.GetKeyspace() || !keys.PartitionContains(d, of.Anchor) {
			continue
		}
		// In a hash keyspace the anchor may lie in another partition: then there is none here.
		record, err := r.storedRecord(txn.RecordKey(keys.InternalKey(d, of.Anchor), of.ID))
		if err != nil {
			return r.readError(q, err)
		}
		if record != nil {
			shown[i].Record = record.Status()
			shown[i].IdleMicros = uint64(record.Idle.Microseconds())
		}
	}
	if address := r.node.ClientAddress; address != nil {
		for _, live := range shown {
			live.ClientAddress = address(live.Client)
		}
	}
	m.Transactions = shown
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_InspectTransactions{InspectTransactions: m}}
}

// Intents is how many keys are locked by transactions that write them, by what this replica has applied: what is on its way does not count.
func (r *Replica) Intents() (n int) {
	if !r.Locked() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.locks.EachTransaction(func(x *locks.Transaction[*parked]) bool {
		x.Each(func(l *lock) bool {
			if l.Applied != nil && !l.Applied.Volatile && l.Applied.Writes() {
				n++
			}
			return true
		})
		return true
	})
	return n
}

// liveTransactionLocked is what is known here of a transaction with locks.
func (r *Replica) liveTransactionLocked(x *locks.Transaction[*parked], now time.Time, physical int64) (*kvpb.LiveTransaction, txn.Info) {
	live := &kvpb.LiveTransaction{Transaction: x.Proto(), Intents: uint64(x.Locks()), Spans: uint64(x.Spans())}
	var oldest int64
	var latest uint64
	x.Each(func(l *lock) bool {
		s := l.Newest()
		if live.Key == nil || s.Laid < oldest {
			live.Key, oldest = []byte(l.Key), s.Laid
		}
		if s.Request.Sequence >= latest {
			live.Client, latest = s.Request.Client, s.Request.Sequence
		}
		return true
	})
	live.AgeMicros = uint64(max(0, physical-x.Started.Wall) / 1000)
	live.OldestMicros = uint64(max(0, physical-oldest) / 1000)
	waited := func(since time.Time) uint64 { return uint64(max(0, now.Sub(since)).Microseconds()) }
	x.EachWaiter(func(key string, p *parked) {
		live.Waiters = append(live.Waiters, &kvpb.Waiter{
			Transaction: p.transaction().ID.Bytes(), Key: []byte(key), WaitedMicros: waited(p.since), Write: true})
	})
	if b := r.mu.waits.blockers[x.ID]; b != nil {
		for _, l := range slices.Concat(b.reads, b.asked) {
			if !l.over {
				live.Waiters = append(live.Waiters, &kvpb.Waiter{
					Transaction: l.rd.own.Bytes(), Key: l.conflict.Key, WaitedMicros: waited(l.since)})
			}
		}
	}
	return live, x.Info
}
