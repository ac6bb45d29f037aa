package replica

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A random history of transactions, in one or two phases, between plain writes and reads,
// elections, lost proposals and snapshots. Some clients die in the middle, requests come twice, and
// the questions of the replicas arrive late. Checked are:
//
//   - of each transaction all versions are there, at one timestamp, or none; all and at the
//     promised timestamp if it was told that it had
//     committed, none if it was told that it had not;
//   - what a committed transaction read is what the log says of its commit timestamp: serialisable
//     in the order of timestamps;
//   - a read of the latest state sees all that was acknowledged before it began;
//   - in the end nothing is locked, all replicas are alike, and the lock table of each is what the
//     engine says.
//
// The histories are those of transactionSeeds, and the same in every run. -replica.seeds adds some
// of random seeds, -rapid.seed runs that one only.
func TestRandomTransactions(t *testing.T) {
	seeds := transactionSeeds
	for range *moreSeeds {
		seeds = append(seeds, rand.Uint64())
	}
	if given := flag.Lookup("rapid.seed").Value.String(); given != "0" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			setFlag(t, "rapid.seed", strconv.FormatUint(seed, 10))
			if seed != seeds[0] {
				setFlag(t, "rapid.checks", "10")
			}
			randomTransactions(t, variant{})
		})
	}
}

// TestRandomTransactionsHoldSpans: the same, and every other transaction holds a span with all its
// keys before it reads. What it has read stays as it was for as long as the span is held.
func TestRandomTransactionsHoldSpans(t *testing.T) {
	randomTransactions(t, variant{holds: true})
}

// transactionSeeds are the seeds of histories. The first one gives as many as -rapid.checks says,
// each other one 10.
var transactionSeeds = []uint64{
	1,
	// A question about a transaction that an earlier leader had committed: the answer waits for the
	// clocks, and nothing may come between.
	7581248462352280456,
	2, 3, 4,
}

var moreSeeds = flag.Int("replica.seeds", 0,
	"run TestRandomTransactions with so many random seeds too")

// setFlag sets a flag until the test ends.
func setFlag(t *testing.T, name, value string) {
	f := flag.Lookup(name)
	before := f.Value.String()
	if err := f.Value.Set(value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(before) })
}

// variant is what a history has besides.
type variant struct {
	// holds: every other transaction holds a span.
	holds bool
	// moments: moments are asked for, and read.
	moments bool
	// waitFor is for how many transactions a read waits at once; 0: as many as ever.
	waitFor int
}

func randomTransactions(t *testing.T, v variant) {
	rapid.Check(t, func(t *rapid.T) {
		h := &transactionHistory{history: newHistory(t), acknowledgedKeys: map[string]hlc.Timestamp{},
			holds: v.holds}
		defer h.c.close()
		for _, m := range h.c.members {
			m.node.locking.MaxBlockers = cmp.Or(v.waitFor, concurrency.DefaultMaxBlockers)
		}
		actions := map[string]func(*rapid.T){
			"go on":      h.goOn,
			"go on2":     h.goOn,
			"go on3":     h.goOn,
			"go on4":     h.goOn,
			"begin":      h.begin,
			"twice":      h.twice,
			"plain":      h.plain,
			"latest":     h.latest,
			"follow":     h.followAdmitted,
			"questions":  h.questions,
			"questions2": h.questions,
			"wait":       h.wait,
			"commit":     h.commit,
			"apply":      h.apply,
			"apply2":     h.apply,
			"drop":       h.drop,
			"elect":      h.elect,
			"lease":      h.lease,
			"confirm":    h.confirm,
			"snapshot":   h.snapshot,
			"clock": func(t *rapid.T) {
				h.advance(time.Duration(rapid.SampledFrom([]int{1, 5, 40}).Draw(t, "ms")) * time.Millisecond)
			},
			"": h.check,
		}
		if v.moments {
			actions["moment"], actions["moment2"] = h.moment, h.moment
		}
		t.Repeat(actions)
		h.end()
	})
}

type transactionHistory struct {
	*history
	transactions []*simulated
	// acknowledgedKeys is the highest version of each key that was acknowledged.
	acknowledgedKeys map[string]hlc.Timestamp
	// answers are to be handed to their callers, when no lock is held.
	answers []func()
	count   int
	// holds: every other one holds a span.
	holds bool
}

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
	began := rpc.ToTimestamp(h.leader.node.Clock.Now())
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
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.mu.locks.Transaction(&info)
	if x.heldIn == nil || !r.isLeadershipLocked(x.heldIn) || of == nil || of.Spans() == 0 {
		return false
	}
	since := true
	// It was prepared before, and not by an attempt that came late.
	of.EachSpan(func(l *lock) { since = since && l.Applied.Prepared.LessEq(x.held) })
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

func sorted[V any](m map[string]V) (sorted []string) {
	for key := range m {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	return sorted
}

// drive sends the present step's request.
func (h *transactionHistory) drive(x *simulated) {
	s := &h.clients[x.client]
	if x.request == nil {
		s.sequence++
		x.request = &kvpb.Request{Id: s.sequence, Generation: 1, Sequence: s.sequence,
			Session: rpc.ToTimestamp(s.session)}
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
	s := &kvpb.ReadSet{At: rpc.ToTimestamp(x.at)}
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
			UncertainUntil: rpc.ToTimestamp(x.until), Movable: len(x.reads) == 0}
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(x.toRead[len(x.reads)]),
			At: rpc.ToTimestamp(x.at), Context: c}}
	case "prepare":
		p := &kvpb.PrepareRequest{Transaction: x.info}
		for _, key := range sorted(x.writes) {
			p.Mutations = append(p.Mutations, &kvpb.Mutation{Key: []byte(key), Value: []byte(x.writes[key])})
		}
		if x.onePhase {
			p.AtLeast = rpc.ToTimestamp(hlc.Timestamp{Wall: h.leader.node.Clock.Physical()}.Add(x.jump))
			p.OnePhase = &kvpb.OnePhase{Reads: x.readSet()}
		}
		q.Command = &kvpb.Request_Prepare{Prepare: p}
	case "refresh":
		q.Command = &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{Transaction: x.info.Id,
			Begun: x.info.Begun, Reads: x.readSet(), To: rpc.ToTimestamp(x.commit)}}
	case "end", "abort":
		e := &kvpb.EndTransactionRequest{Transaction: x.info, Commit: x.step == "end"}
		if e.Commit {
			e.CommitTimestamp = rpc.ToTimestamp(x.commit)
		}
		q.Command = &kvpb.Request_EndTransaction{EndTransaction: e}
	case "resolve":
		status := &kvpb.TransactionStatus{State: x.told}
		if x.told == kvpb.TransactionState_COMMITTED {
			status.Timestamp = rpc.ToTimestamp(x.commit)
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
			x.commit = rpc.FromTimestamp(e.Timestamp).Next()
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
			x.at = rpc.FromTimestamp(r.Get.At)
			if x.until.IsZero() {
				x.until = x.at.Add(500 * time.Millisecond)
			}
		}
		if seen := x.seen[key]; x.at.Less(seen) ||
			(r.Get.Found && rpc.FromTimestamp(r.Get.Version).Less(seen)) {
			h.fault("transaction T%d: read of %s %s, but %s was acknowledged before it began", x.number, key,
				describe(response), stamp(seen))
		}
		x.reads[key] = r.Get
		next("read")
	case *kvpb.Response_Prepare:
		if x.step == "hold" {
			if r.Prepare.Held {
				x.at = rpc.FromTimestamp(r.Prepare.Prepared)
				x.until = x.at.Add(500 * time.Millisecond)
				x.held, x.heldIn = x.at, r.Prepare.Leadership
			}
			next("read")
			return
		}
		x.commit = hlc.Max(x.commit, rpc.FromTimestamp(r.Prepare.Prepared))
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
			x.commit = rpc.FromTimestamp(r.EndTransaction.Status.Timestamp)
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

// twice sends a request again that is on its way.
func (h *transactionHistory) twice(t *rapid.T) {
	var waiting []*simulated
	for _, x := range h.transactions {
		if !x.over && !x.dead && x.request != nil {
			waiting = append(waiting, x)
		}
	}
	if len(waiting) == 0 {
		t.Skip("none")
	}
	h.drive(rapid.SampledFrom(waiting).Draw(t, "transaction"))
}

// plain is a put or a delete outside of transactions; its client does not try again.
func (h *transactionHistory) plain(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	s := &h.clients[client]
	s.sequence++
	q := &kvpb.Request{Id: s.sequence, Generation: 1, Term: h.c.term, Sequence: s.sequence,
		Session: rpc.ToTimestamp(s.session)}
	key := drawKey(t)
	if rapid.Bool().Draw(t, "delete") {
		q.Command = &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: key}}
	} else {
		q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key, Value: fmt.Appendf(nil, "p%d-%d",
			client, s.sequence)}}
	}
	h.send(h.leader, client, q, func(response *kvpb.Response) {
		if response.Error == nil {
			ts := hlc.Max(rpc.FromTimestamp(response.GetPut().GetVersion()),
				rpc.FromTimestamp(response.GetDelete().GetVersion()))
			h.acknowledgedKeys[string(key)] = hlc.Max(h.acknowledgedKeys[string(key)], ts)
		}
	})
	h.deliver()
}

// latest is a read of the latest state, of one key or all.
func (h *transactionHistory) latest(t *rapid.T) {
	client := rapid.IntRange(0, len(h.clients)-1).Draw(t, "client")
	q := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term}
	key := string(drawKey(t))
	seen := map[string]hlc.Timestamp{}
	for k, ts := range h.acknowledgedKeys {
		seen[k] = ts
	}
	context := rapid.Bool().Draw(t, "context")
	if rapid.Bool().Draw(t, "scan") {
		q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}
	} else {
		g := &kvpb.GetRequest{Key: []byte(key)}
		if context {
			g.Context = &kvpb.ReadContext{}
		}
		q.Command = &kvpb.Request_Get{Get: g}
	}
	h.sendRead(t, h.target(t), client, q, func(response *kvpb.Response) {
		if response.GetGet() != nil && response.ReadAt != nil {
			h.readings = append(h.readings, reading{q, response})
		}
		switch r := response.Result.(type) {
		case *kvpb.Response_Get:
			// What is absent may have been deleted: then the timestamp tells, if it is given.
			if r.Get.Found && rpc.FromTimestamp(r.Get.Version).Less(seen[key]) {
				h.fault("key %s: read %s, but %s was acknowledged before", key, describe(response),
					stamp(seen[key]))
			}
			if at := r.Get.At; at != nil {
				h.readings = append(h.readings,
					reading{&kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key),
						At: at}}}, response})
				if rpc.FromTimestamp(at).Less(seen[key]) {
					h.fault("key %s: read %s, but %s was acknowledged before", key, describe(response),
						stamp(seen[key]))
				}
			}
		case *kvpb.Response_Scan:
			h.readings = append(h.readings, reading{q, response})
			for k, ts := range seen {
				if rpc.FromTimestamp(r.Scan.At).Less(ts) {
					h.fault("scan at %s, but key %s at %s was acknowledged before", wireStamp(r.Scan.At),
						k, stamp(ts))
				}
			}
		}
	})
	h.deliver()
}

// followAdmitted is follow.
func (h *transactionHistory) followAdmitted(t *rapid.T) {
	h.follow(t)
	h.deliver()
}

// questions brings questions of the replicas to the leader; some are lost.
func (h *transactionHistory) questions(t *rapid.T) {
	h.ask(func() bool { return rapid.IntRange(0, 5).Draw(t, "lost") == 0 })
}

func (h *transactionHistory) ask(lost func() bool) {
	h.step++
	for _, m := range h.c.members {
		asked := m.pusher.take("")
		slices.SortStableFunc(asked, func(a, b testPush) int {
			return strings.Compare(string(a.request.Pushee.Id), string(b.request.Pushee.Id))
		})
		for _, a := range asked {
			if lost() {
				a.done(nil, errors.New("lost"))
				h.c.settle()
				continue
			}
			h.clients[0].sequence++
			q := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term, Sequence: h.clients[0].sequence,
				Command: &kvpb.Request_Push{Push: a.request}}
			h.send(h.leader, 0, q, func(response *kvpb.Response) {
				h.answers = append(h.answers, func() {
					if response.Error != nil {
						a.done(nil, errors.New(response.Error.Message))
					} else {
						a.done(response.GetPush().Status, nil)
					}
				})
			})
		}
	}
	h.deliver()
}

// deliver hands answers to their callers.
func (h *transactionHistory) deliver() {
	for {
		h.c.mu.Lock()
		answers := h.answers
		h.answers = nil
		h.c.mu.Unlock()
		if len(answers) == 0 {
			return
		}
		for _, answer := range answers {
			answer()
		}
		h.c.settle()
	}
}

// wait lets what waits ask the coordinators again, and the clocks pass what waits for them.
func (h *transactionHistory) wait(*rapid.T) {
	h.step++
	h.c.mu.Lock()
	h.c.waited += 300 * time.Millisecond
	h.c.mu.Unlock()
	for _, m := range h.c.members {
		m.ringTimers()
	}
	h.c.settle()
	h.deliver()
}
