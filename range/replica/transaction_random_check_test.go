package replica

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// end lets the living finish and the dead be swept away, and compares.
func (h *transactionHistory) end() {
	if h.stale != nil {
		h.hearOfLeader(h.stale)
	}
	h.c.mu.Lock()
	h.c.lease = true
	h.c.mu.Unlock()
	rounds, most := 0, 400
	for _, x := range h.transactions {
		if x.dead { // a request of its may get locks yet, and leave them until it counts as silent
			most += int(txn.Abandoned / (20 * time.Millisecond))
		}
	}
	for ; rounds < most; rounds++ {
		h.advance(20 * time.Millisecond)
		open := false
		for _, x := range h.transactions {
			if !x.over && !x.dead {
				open = true
				h.drive(x)
			}
		}
		h.leader.commit(-1)
		for _, m := range h.c.members {
			m.catchUp(-1)
			h.c.settle()
		}
		h.leader.failReadsOnce(nil)
		h.c.settle()
		h.ask(func() bool { return false })
		h.wait(nil)
		if !open {
			h.advance(500 * time.Millisecond)
			h.leader.replica.eval.SweepLocks(h.leader.Now())
			if !h.leader.replica.Locked() {
				break
			}
		}
	}
	h.model()
	h.check(h.t)
	for _, m := range h.c.members {
		h.checkLocks(m)
	}
	if h.leader.replica.Locked() || rounds == most {
		h.t.Fatalf("after %d rounds there are locks, or clients that wait", rounds)
	}
	for _, x := range h.transactions {
		h.checkTransaction(x)
	}
	for _, r := range h.readings {
		h.checkReading(r)
	}
	h.checkStats()
}

// checkLocks: the table is what the engine says.
func (h *transactionHistory) checkLocks(m *member) {
	found, err := readAnchored(m.state, m.replica.Descriptor())
	if err != nil {
		h.t.Fatal(err)
	}
	r := m.replica
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	if len(found.locks) != r.m.Mu.Locks.Len() {
		h.t.Fatalf("replica %s: %d locks, the engine has %d", m.id, r.m.Mu.Locks.Len(), len(found.locks))
	}
	for _, c := range found.locks {
		if l := r.m.Mu.Locks.Get(c.Key); l == nil || l.InFlight() || *l.Applied != c.State ||
			l.Transaction.ID != c.Of.ID {
			h.t.Fatalf("replica %s: the lock of %s is %+v, the engine has %+v", m.id, c.Key, l, c)
		}
	}
}

func (h *transactionHistory) checkTransaction(x *simulated) {
	value := fmt.Sprintf("T%d", x.number)
	at := hlc.Timestamp{}
	there := 0
	for key, versions := range h.versions {
		n := 0
		for _, v := range versions {
			if v.value != value {
				continue
			}
			if n++; n > 1 {
				h.t.Fatalf("transaction %s wrote %s twice", value, key)
			}
			if there++; there > 1 && v.ts != at {
				h.t.Fatalf("transaction %s wrote %s at %s, and another key at %s", value, key,
					stamp(v.ts), stamp(at))
			}
			at = v.ts
		}
	}
	switch {
	case there != 0 && there != len(x.writes):
		h.t.Fatalf("transaction %s wrote %d of %d keys", value, there, len(x.writes))
	case x.told == kvpb.TransactionState_COMMITTED && (there == 0 || at != x.acknowledged):
		h.t.Fatalf("transaction %s was told that it had committed at %s; it has %d versions at %s",
			value, stamp(x.acknowledged), there, stamp(at))
	case x.told == kvpb.TransactionState_ABORTED && there != 0:
		h.t.Fatalf("transaction %s was told that it had not committed; it has %d versions at %s", value,
			there, stamp(at))
	case there == 0:
		return
	}
	for key, got := range x.reads {
		want, found := h.at(key, at.Prev())
		if found != got.Found ||
			(found && (want.value != string(got.Value) || want.ts != wire.FromTimestamp(got.Version))) {
			h.t.Fatalf("transaction %s committed at %s and read of %s %s at %s; just below its commit "+
				"there is %+v (%t)",
				value, stamp(at), key, describeGet(got), stamp(x.at), want, found)
		}
	}
}

// checkStats counts what the leader's partition holds.
func (h *transactionHistory) checkStats() {
	r := h.leader.replica
	var want storage.Stats
	iter, err := mvcc.Scan(r.state, mvcc.ScanOptions{Span: keys.PartitionSpan(r.Descriptor()),
		At: hlc.MaxTimestamp}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	want.LiveKeys = uint64(iter.Rows)
	for key, versions := range h.versions {
		for _, v := range versions {
			want.Versions++
			internal := keys.InternalKey(r.Descriptor(), []byte(key))
			want.Bytes += uint64(keys.VersionedKeySize(internal, v.ts) + len(v.value))
		}
	}
	if got := r.Stats(); got != want {
		h.t.Fatalf("it counts %+v and holds %+v", got, want)
	}
}
