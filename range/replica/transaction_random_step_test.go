package replica

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// simulated is a client with a transaction.
type simulated struct {
	number int
	client int
	info   *kvpb.Transaction
	reads  map[string]*kvpb.GetResponse
	at     hlc.Timestamp
	until  hlc.Timestamp
	toRead []string
	writes map[string]string
	// seen is what had been acknowledged of each key before it began.
	seen map[string]hlc.Timestamp
	// jump is by how much the clock of another partition that it writes to is ahead.
	jump         time.Duration
	onePhase     bool
	step         string
	request      *kvpb.Request
	commit       hlc.Timestamp
	acknowledged hlc.Timestamp
	told         kvpb.TransactionState
	over, dead   bool
	// heldIn is the leadership in which its span was held; nil: it has held none.
	heldIn *kvpb.Leadership
	held   hlc.Timestamp
}

func (h *transactionHistory) begin(t *rapid.T) {
	open := 0
	for _, x := range h.transactions {
		if !x.over && !x.dead {
			open++
		}
	}
	if open >= 4 {
		t.Skip("enough")
	}
	h.step++
	h.count++
	subset := func(label string, least int) []string {
		var drawn []string
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]byte(historyKeys)), least, 3,
			rapid.ID[byte]).Draw(t, label) {
			drawn = append(drawn, string(key))
		}
		return drawn
	}
	x := &simulated{number: h.count, client: h.count % len(h.clients),
		reads: map[string]*kvpb.GetResponse{}, writes: map[string]string{}, step: "read"}
	x.toRead = subset("reads", 0)
	for _, key := range subset("writes", 1) {
		x.writes[key] = fmt.Sprintf("T%d", x.number)
	}
	x.seen = maps.Clone(h.acknowledgedKeys)
	x.jump = time.Duration(rapid.SampledFrom([]int{0, 0, 3, 30, 120}).Draw(t,
		"jump")) * time.Millisecond
	if back := rapid.SampledFrom([]int{0, 0, 2, 20, 60}).Draw(t, "back"); back > 0 {
		// Its timestamp comes from a partition whose clock is behind.
		now := h.leader.node.Clock.Now()
		x.at = hlc.Timestamp{Wall: now.Wall - int64(back)*1e6}
		x.until = x.at.Add(500 * time.Millisecond)
	}
	x.onePhase = rapid.IntRange(0, 2).Draw(t, "phases") == 0
	began := wire.ToTimestamp(h.leader.node.Clock.Now())
	anchor := ""
	for key := range x.writes {
		if anchor == "" || key < anchor {
			anchor = key
		}
	}
	x.info = &kvpb.Transaction{Id: transactionID(fmt.Sprintf("T%d", x.number)), Begun: began,
		Started: began, Keyspace: 7, Anchor: []byte(anchor)}
	if h.holds && x.number%2 == 0 {
		x.step, x.at, x.until = "hold", hlc.Timestamp{}, hlc.Timestamp{}
	}
	h.transactions = append(h.transactions, x)
}

// span is from the first to the last key of a transaction.
func (x *simulated) span() *kvpb.KeySpan {
	all := append(sorted(x.writes), x.toRead...)
	return &kvpb.KeySpan{Start: []byte(slices.Min(all)), End: []byte(slices.Max(all) + "\x00")}
}

// holdsNow says that the present leader has held the transaction's span ever since it was told so.
func (h *transactionHistory) holdsNow(x *simulated) bool {
	r := h.leader.replica
	info, err := txn.ParseInfo(x.info)
	if err != nil {
		panic(err)
	}
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	of := r.m.Mu.Locks.Transaction(&info)
	if x.heldIn == nil || !r.m.IsLeadershipLocked(x.heldIn) || of == nil || of.Spans() == 0 {
		return false
	}
	since := true
	// It was prepared before, and not by an attempt that came late.
	of.EachSpan(func(l *concurrency.Lock) { since = since && l.Applied.Prepared.LessEq(x.held) })
	return since
}

// goOn has a client do its next step, or try the present one again.
func (h *transactionHistory) goOn(t *rapid.T) {
	var live []*simulated
	for _, x := range h.transactions {
		if !x.over && !x.dead {
			live = append(live, x)
		}
	}
	if len(live) == 0 {
		t.Skip("none")
	}
	x := rapid.SampledFrom(live).Draw(t, "transaction")
	if rapid.IntRange(0, 24).Draw(t, "dies") == 0 {
		x.dead = true
		return
	}
	h.drive(x)
}

// drive sends the present step's request.
func (h *transactionHistory) drive(x *simulated) {
	s := &h.clients[x.client]
	if x.request == nil {
		s.sequence++
		x.request = &kvpb.Request{Id: s.sequence, Generation: 1, Sequence: s.sequence,
			Session: wire.ToTimestamp(s.session)}
		h.compose(x, x.request)
	}
	q := x.request
	q.Term = h.c.term
	h.send(h.leader, x.client, q, func(response *kvpb.Response) {
		if x.request == q {
			h.answered(x, response)
		}
	})
	h.deliver()
}

func (x *simulated) readSet() *kvpb.ReadSet {
	s := &kvpb.ReadSet{At: wire.ToTimestamp(x.at)}
	for i, key := range sorted(x.reads) {
		if i%2 == 0 {
			s.Keys = append(s.Keys, []byte(key))
		} else {
			s.Spans = append(s.Spans, &kvpb.KeySpan{Start: []byte(key), End: []byte(key + "\x00")})
		}
	}
	return s
}

// compose makes the next request of a transaction.
func (h *transactionHistory) compose(x *simulated, q *kvpb.Request) {
	if x.step == "read" && len(x.reads) == len(x.toRead) {
		x.step = "prepare"
	}
	switch x.step {
	case "hold":
		q.Command = &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: x.info,
			Volatile: true, ReturnValues: true, HoldSpans: []*kvpb.KeySpan{x.span()}}}
	case "read":
		c := &kvpb.ReadContext{Transaction: x.info.Id, Begun: x.info.Begun,
			UncertainUntil: wire.ToTimestamp(x.until), Movable: len(x.reads) == 0}
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(x.toRead[len(x.reads)]),
			At: wire.ToTimestamp(x.at), Context: c}}
	case "prepare":
		p := &kvpb.PrepareRequest{Transaction: x.info}
		for _, key := range sorted(x.writes) {
			p.Mutations = append(p.Mutations, &kvpb.Mutation{Key: []byte(key),
				Value: []byte(x.writes[key])})
		}
		if x.onePhase {
			p.AtLeast = wire.ToTimestamp(hlc.Timestamp{Wall: h.leader.node.Clock.Physical()}.Add(x.jump))
			p.OnePhase = &kvpb.OnePhase{Reads: x.readSet()}
		}
		q.Command = &kvpb.Request_Prepare{Prepare: p}
	case "refresh":
		q.Command = &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{Transaction: x.info.Id,
			Begun: x.info.Begun, Reads: x.readSet(), To: wire.ToTimestamp(x.commit)}}
	case "end", "abort":
		e := &kvpb.EndTransactionRequest{Transaction: x.info, Commit: x.step == "end"}
		if e.Commit {
			e.CommitTimestamp = wire.ToTimestamp(x.commit)
		}
		q.Command = &kvpb.Request_EndTransaction{EndTransaction: e}
	case "resolve":
		status := &kvpb.TransactionStatus{State: x.told}
		if x.told == kvpb.TransactionState_COMMITTED {
			status.Timestamp = wire.ToTimestamp(x.commit)
		}
		q.Command = &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Resolutions: []*kvpb.Resolution{
			{Transaction: x.info.Id, Status: status}}}}
	}
}

// answered takes a client's answer.
func (h *transactionHistory) answered(x *simulated, response *kvpb.Response) {
	next := func(step string) { x.request, x.step = nil, step }
	if e := response.Error; e != nil {
		switch e.Code {
		case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_CLOCK_SKEW, kvpb.ErrorCode_OUTCOME_UNKNOWN,
			kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_NO_QUORUM, kvpb.ErrorCode_NODE_UNHEALTHY,
			kvpb.ErrorCode_TIMESTAMP_IN_FUTURE:
			// Again, when its turn comes.
		case kvpb.ErrorCode_TRANSACTION_PUSHED:
			x.commit = wire.FromTimestamp(e.Timestamp).Next()
			next("refresh")
		case kvpb.ErrorCode_TRANSACTION_ABORTED:
			x.told = kvpb.TransactionState_ABORTED
			next("resolve")
		case kvpb.ErrorCode_TRANSACTION_CONFLICT, kvpb.ErrorCode_UNCERTAIN,
			kvpb.ErrorCode_TRANSACTION_TOO_OLD:
			if e.Code == kvpb.ErrorCode_TRANSACTION_CONFLICT {
				step := x.step
				h.answers = append(h.answers, func() {
					if h.holdsNow(x) {
						h.fault("transaction T%d, %s: %s, but it holds %s", x.number, step,
							describe(response), x.span())
					}
				})
			}
			if x.onePhase {
				x.over, x.told = true, kvpb.TransactionState_ABORTED
			}
			next("abort")
		default:
			h.fault("transaction T%d, %s: %s", x.number, x.step, describe(response))
		}
		return
	}
	switch r := response.Result.(type) {
	case *kvpb.Response_Get:
		key := x.toRead[len(x.reads)]
		if len(x.reads) == 0 {
			x.at = wire.FromTimestamp(r.Get.At)
			if x.until.IsZero() {
				x.until = x.at.Add(500 * time.Millisecond)
			}
		}
		if seen := x.seen[key]; x.at.Less(seen) ||
			(r.Get.Found && wire.FromTimestamp(r.Get.Version).Less(seen)) {
			h.fault("transaction T%d: read of %s %s, but %s was acknowledged before it began",
				x.number, key, describe(response), stamp(seen))
		}
		x.reads[key] = r.Get
		next("read")
	case *kvpb.Response_Prepare:
		if x.step == "hold" {
			if r.Prepare.Held {
				x.at = wire.FromTimestamp(r.Prepare.Prepared)
				x.until = x.at.Add(500 * time.Millisecond)
				x.held, x.heldIn = x.at, r.Prepare.Leadership
			}
			next("read")
			return
		}
		x.commit = hlc.Max(x.commit, wire.FromTimestamp(r.Prepare.Prepared))
		if x.onePhase {
			x.over = true
			h.acknowledge(x)
		} else if x.jump > 0 {
			x.commit = hlc.Max(x.commit, hlc.Timestamp{Wall: h.leader.node.Clock.Physical()}.Add(x.jump))
		}
		next("refresh")
	case *kvpb.Response_Refresh:
		next("end")
	case *kvpb.Response_EndTransaction:
		x.told = r.EndTransaction.Status.State
		if x.told == kvpb.TransactionState_COMMITTED {
			if x.step == "abort" {
				h.fault("transaction T%d is committed, and never asked for it", x.number)
			}
			x.commit = wire.FromTimestamp(r.EndTransaction.Status.Timestamp)
			h.acknowledge(x)
		}
		next("resolve")
	case *kvpb.Response_Resolve:
		x.over = true
	}
}

func (h *transactionHistory) acknowledge(x *simulated) {
	x.told, x.acknowledged = kvpb.TransactionState_COMMITTED, x.commit
	for key := range x.writes {
		h.acknowledgedKeys[key] = hlc.Max(h.acknowledgedKeys[key], x.commit)
	}
}
