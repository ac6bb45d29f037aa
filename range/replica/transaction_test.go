package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// testPush is a push that is not answered yet.
type testPush struct {
	request *kvpb.PushRequest
	done    func(*kvpb.TransactionStatus, error)
}

// testPusher keeps questions until the test answers them.
type testPusher struct {
	mu    sync.Mutex
	asked []testPush
	fresh int
}

func (p *testPusher) Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, testPush{q, done})
	p.fresh++
}

// describe prints what was asked since the last call.
func (p *testPusher) describe(out *strings.Builder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := p.asked[len(p.asked)-min(p.fresh, len(p.asked)):]
	p.fresh = 0
	var lines []string
	for _, a := range fresh {
		q := a.request
		line := fmt.Sprintf("asks about %s: %s", shortID(q.Pushee.Id), strings.ToLower(q.Kind.String()))
		if q.Above != nil {
			line += " above " + roughStamp(q.Above)
		}
		if q.Pusher != nil {
			line += " for " + shortID(q.Pusher)
		}
		if q.WantedKey != nil {
			line += fmt.Sprintf(", which wants %q of keyspace %d", q.WantedKey, q.WantedKeyspace)
		}
		lines = append(lines, line)
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
}

// take returns the open questions about a transaction, or about all.
func (p *testPusher) take(id string) (taken []testPush) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var rest []testPush
	for _, a := range p.asked {
		if id == "" || id == string(a.request.Pushee.Id) {
			taken = append(taken, a)
		} else {
			rest = append(rest, a)
		}
	}
	p.asked, p.fresh = rest, 0
	return taken
}

// Resolve implements txn.Resolver.
func (m *member) Resolve(_ context.Context, all []txn.Committed) []bool {
	settled := make([]bool, len(all))
	for i, c := range all {
		name := shortID(c.ID.Bytes())
		if own := m.replica.Descriptor().GetKeyspace(); uint32(c.Keyspace) != own ||
			len(c.Anchor) == 0 {
			m.cluster.t.Errorf("%s is resolved for the anchor %q of keyspace %d",
				name, c.Anchor, c.Keyspace)
		}
		var in []string
		for _, p := range c.Participants {
			switch name := string(p.First); {
			case p.Whole():
				in = append(in, "all of keyspace "+p.Keyspace.String())
			case string(p.Last) != name:
				in = append(in, name+" to "+string(p.Last))
			default:
				in = append(in, name)
			}
		}
		m.resolved = append(m.resolved, fmt.Sprintf("resolves %s at %s in %s", name, stamp(c.At),
			strings.Join(in, ", ")))
		settled[i] = m.settled[name] || m.settled[name+"@"+string(c.Anchor)]
	}
	return settled
}

// lockTime is the time by which waiting is measured.
func (c *testCluster) lockTime() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.waited)
}

// transactionID is the id of a transaction with a short name.
func transactionID(name string) []byte {
	id := make([]byte, 16)
	copy(id, name)
	return id
}

func shortID(id []byte) string {
	if len(id) == 0 {
		return "none"
	}
	return strings.TrimRight(string(id), "\x00")
}

func describeStatus(s *kvpb.TransactionStatus) string {
	text := strings.ToLower(s.GetState().String())
	if s.GetTimestamp() != nil {
		text += " " + roughStamp(s.Timestamp)
	}
	if s.GetReason() != 0 {
		text += " " + s.Reason.String()
	}
	if s.GetWantedKey() != nil {
		text += fmt.Sprintf(" over %q of keyspace %d", s.WantedKey, s.WantedKeyspace)
	}
	return text
}

func describeTransactions(m *kvpb.InspectTransactionsResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d transactions", len(m.Transactions))
	for _, x := range m.Transactions {
		fmt.Fprintf(&b, "; %s has %d intents, one at %q", shortID(x.Transaction.Id), x.Intents, x.Key)
		if x.Spans > 0 {
			fmt.Fprintf(&b, ", %d of spans", x.Spans)
		}
		if x.Record != nil {
			fmt.Fprintf(&b, ", is %s", describeStatus(x.Record))
		}
		for _, w := range x.Waiters {
			fmt.Fprintf(&b, ", for %q waits %s", w.Key, shortID(w.Transaction))
			if w.Write {
				fmt.Fprint(&b, " to write")
			}
		}
	}
	if m.More {
		fmt.Fprint(&b, "; and more")
	}
	return b.String()
}

// runTransactional runs the commands of scenarios that have to do with transactions.
func (s *scenario) runTransactional(d *datadriven.TestData, out *strings.Builder) bool {
	switch d.Cmd {
	case "transaction":
		begun := option(s.t, d, "begun", 1)
		anchor := "k"
		if d.HasArg("anchor") {
			d.ScanArgs(s.t, "anchor", &anchor)
		}
		ts := func(ms int) *kvpb.Timestamp {
			return &kvpb.Timestamp{Wall: uint64(epoch + int64(ms)*1e6)}
		}
		if s.transactions == nil {
			s.transactions = map[string]*kvpb.Transaction{}
		}
		name := d.CmdArgs[0].Key
		id := name
		if d.HasArg("id") { // that of another one
			d.ScanArgs(s.t, "id", &id)
		}
		s.transactions[name] = &kvpb.Transaction{Id: transactionID(id), Keyspace: 7,
			Anchor: []byte(anchor),
			Begun:  ts(begun), Started: ts(option(s.t, d, "started", begun))}
	case "wait":
		s.c.mu.Lock()
		s.c.waited += time.Duration(number(d.CmdArgs[1].Key)) * time.Millisecond
		s.c.mu.Unlock()
		s.member(d, "").ringTimers()
	case "answer":
		status := &kvpb.TransactionStatus{}
		var err error
		switch d.CmdArgs[2].Key {
		case "committed":
			status.State = kvpb.TransactionState_COMMITTED
		case "aborted":
			status.State, status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_WOUNDED
		case "error":
			status, err = nil, errors.New("no server is there")
		case "gone":
			status, err = nil, fmt.Errorf("push: %w", txn.ErrCoordinatorGone)
		}
		if d.HasArg("at") {
			var at string
			d.ScanArgs(s.t, "at", &at)
			status.Timestamp = parseStamp(at)
		}
		if d.HasArg("over") { // a key of another keyspace
			var key string
			d.ScanArgs(s.t, "over", &key)
			status.WantedKey, status.WantedKeyspace = []byte(key), 9
		}
		for _, a := range s.member(d, "").pusher.take(string(transactionID(d.CmdArgs[1].Key))) {
			a.done(status, err)
		}
	case "coordinate":
		m := s.member(d, "")
		for _, a := range m.pusher.take("") {
			s.id++
			q := &kvpb.Request{Id: s.id, Partition: 100, Generation: 1, Term: s.c.term, Sequence: s.id,
				Command: &kvpb.Request_Push{Push: a.request}}
			m.replica.Submit([]config.Pending{{Client: 9, Request: q, Arrived: time.Now(),
				Reply: func(response *kvpb.Response) {
					response = kept(response)
					s.answers.reply(response)
					if response.Error != nil {
						a.done(nil, errors.New(response.Error.Message))
					} else {
						a.done(response.GetPush().Status, nil)
					}
				}}})
		}
	case "settle": // NAME: from now on its participants answer that there is no lock left
		m := s.member(d, "")
		if m.settled == nil {
			m.settled = map[string]bool{}
		}
		name := d.CmdArgs[1].Key
		if d.HasArg("anchor") { // only those of the record at this anchor
			var anchor string
			d.ScanArgs(s.t, "anchor", &anchor)
			name += "@" + anchor
		}
		m.settled[name] = true
	case "sweep":
		s.c.mu.Lock()
		s.c.mu.Unlock()
		s.member(d, "").replica.eval.SweepLocks(s.member(d, "").Now())
	case "locks":
		r := s.member(d, "").replica
		r.m.Mu.Lock()
		r.m.Mu.Locks.Each("", "", func(l *concurrency.Lock) bool {
			fmt.Fprintf(out, "%q by %s:", l.Key, shortID(l.Transaction.ID.Bytes()))
			if a := l.Applied; a != nil {
				fmt.Fprintf(out, " %s prepared at %s", a.Kind, stamp(a.Prepared))
			}
			if f := l.Proposed; f != nil {
				fmt.Fprintf(out, " (in flight: %s prepared at %s)", f.Kind, stamp(f.Prepared))
			}
			if l.Releasing() {
				fmt.Fprint(out, " (going)")
			}
			fmt.Fprintln(out)
			return true
		})
		r.m.Mu.Locks.EachSpanIn("", "", func(l *concurrency.Lock) bool {
			fmt.Fprintf(out, "[%q, %q) held by %s\n", l.Key, l.End, shortID(l.Transaction.ID.Bytes()))
			return true
		})
		fmt.Fprintf(out, "%d wait to write, %d to read, %d records in flight\n", r.m.Mu.Locks.Waiters(),
			r.m.Mu.Locks.Reads.Len(), r.eval.RecordsLocked())
		r.m.Mu.Unlock()
	default:
		return false
	}
	return true
}

func parseStamp(text string) *kvpb.Timestamp {
	wall, logical, _ := strings.Cut(text, ".")
	ts := &kvpb.Timestamp{Wall: uint64(epoch + int64(number(wall))*1e6)}
	if logical != "" {
		ts.Logical = uint32(number(logical))
	}
	return ts
}

// parseTransactional reads a request of a transaction:
//
//	prepare NAME K=V,K=-,K=lock,K=unlock,... (with ? at the end: it was read) [least=T] [values]
//	  [volatile] [one-phase] [wait] [under=TERM.EPOCH] [keys=K,K] [spans=A:B,A:B] [read-at=T]
//	hold NAME spans=A:B,A:B [least=T]
//	end NAME commit=T | end NAME abort            [wait] [participants=K,K:L] [earlier]
//	push NAME status|timestamp|abort [above=T] [pusher=NAME] [seen=T]
//	heartbeat NAME | resolve NAME commit=T | resolve NAME abort
//	refresh NAME at=T to=T [keys=K,K] [spans=A:B,A:B]
//	inspect [NAME]
//
// and for reads: context [txn=NAME] [until=T] [observed=T] [movable] [under=TERM.EPOCH].
func (s *scenario) parseTransactional(q *kvpb.Request, words []string, options map[string]string,
	at func(string) *kvpb.Timestamp) bool {
	has := func(word string) bool {
		for _, w := range words {
			if w == word {
				return true
			}
		}
		return false
	}
	if words[0] == "inspect" {
		c := &kvpb.InspectTransactionsRequest{}
		if len(words) > 1 {
			c.Transaction = s.transactions[words[1]].Id
		}
		q.Command = &kvpb.Request_InspectTransactions{InspectTransactions: c}
		return true
	}
	x := s.transactions[words[1]]
	status := &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED,
		Reason: kvpb.AbortReason_ROLLED_BACK}
	if options["commit"] != "" {
		status = &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
			Timestamp: at("commit")}
	}
	reads := &kvpb.ReadSet{At: at("at")}
	if options["read-at"] != "" {
		reads.At = at("read-at")
	}
	if options["keys"] != "" {
		for _, key := range strings.Split(options["keys"], ",") {
			reads.Keys = append(reads.Keys, []byte(key))
		}
	}
	if options["spans"] != "" {
		for _, span := range strings.Split(options["spans"], ",") {
			start, end, _ := strings.Cut(span, ":")
			reads.Spans = append(reads.Spans, &kvpb.KeySpan{Start: []byte(start), End: []byte(end)})
		}
	}
	reads.Leadership = s.leadership(options)
	switch words[0] {
	case "prepare":
		p := &kvpb.PrepareRequest{Transaction: x, AtLeast: at("least"), ReturnValues: has("values"),
			Volatile:   has("volatile"),
			CommitWait: has("wait") && !has("one-phase")}
		for _, mutation := range strings.Split(words[2], ",") {
			key, value, _ := strings.Cut(mutation, "=")
			value, read := strings.CutSuffix(value, "?")
			m := &kvpb.Mutation{Key: []byte(key), Value: []byte(value), Read: read}
			switch value {
			case "-":
				m.Kind, m.Value = kvpb.Mutation_DELETE, nil
			case "lock":
				m.Kind, m.Value = kvpb.Mutation_LOCK, nil
			case "unlock":
				m.Kind, m.Value = kvpb.Mutation_UNLOCK, nil
			}
			p.Mutations = append(p.Mutations, m)
		}
		if has("one-phase") {
			p.OnePhase = &kvpb.OnePhase{Reads: reads, CommitWait: has("wait")}
		} else if options["read-at"] != "" {
			p.ReadAt, p.Leadership = reads.At, reads.Leadership
		}
		q.Command = &kvpb.Request_Prepare{Prepare: p}
	case "hold":
		q.Command = &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: x,
			AtLeast:      at("least"),
			ReturnValues: true, Volatile: true, HoldSpans: reads.Spans}}
	case "end":
		end := &kvpb.EndTransactionRequest{Transaction: x, Commit: options["commit"] != "",
			Requested: has("requested"), CommitTimestamp: at("commit"), CommitWait: has("wait")}
		if options["participants"] != "" {
			for _, key := range strings.Split(options["participants"], ",") {
				first, last, _ := strings.Cut(key, ":")
				p := &kvpb.Participant{Keyspace: 7, Key: []byte(first), Last: []byte(last)}
				if !has("earlier") {
					p.Hash = new(uint32)
				}
				end.Participants = append(end.Participants, p)
			}
		}
		q.Command = &kvpb.Request_EndTransaction{EndTransaction: end}
	case "push":
		p := &kvpb.PushRequest{Pushee: x, Above: at("above"),
			Seen: wire.ToTimestamp(hlc.Timestamp{Wall: s.c.physical.Now()})}
		p.Kind = kvpb.PushRequest_Kind(kvpb.PushRequest_Kind_value[strings.ToUpper(words[2])])
		if options["seen"] != "" {
			p.Seen = at("seen")
		}
		if options["locked"] != "" {
			p.LockedKeyspace = uint32(number(options["locked"]))
		}
		if pusher := s.transactions[options["pusher"]]; pusher != nil {
			p.Pusher, p.PusherBegun = pusher.Id, pusher.Begun
		}
		q.Command = &kvpb.Request_Push{Push: p}
	case "heartbeat":
		var idle uint64
		if options["idle"] != "" {
			idle = uint64(number(options["idle"])) * 1000
		}
		q.Command = &kvpb.Request_HeartbeatTransaction{
			HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{Transaction: x,
				IdleMicros: idle}}
	case "resolve":
		q.Command = &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Resolutions: []*kvpb.Resolution{
			{Transaction: x.Id, Status: status}}}}
	case "refresh":
		q.Command = &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{Transaction: x.Id,
			Begun: x.Begun, Reads: reads, To: at("to"),
			Yield: slices.Contains(words, "yield")}}
	default:
		return false
	}
	return true
}

// leadership is what "under" says; nil if it is not there.
func (s *scenario) leadership(options map[string]string) *kvpb.Leadership {
	if options["under"] == "" {
		return nil
	}
	l := &kvpb.Leadership{Partition: uint64(s.c.members[0].replica.id)}
	if _, err := fmt.Sscanf(options["under"], "%d.%d", &l.Term, &l.Epoch); err != nil {
		s.t.Fatalf("under=%s: %v", options["under"], err)
	}
	return l
}

// addContext gives a read its context.
func (s *scenario) addContext(q *kvpb.Request, line string, options map[string]string,
	at func(string) *kvpb.Timestamp) {
	if !strings.Contains(line, " context") {
		return
	}
	c := &kvpb.ReadContext{UncertainUntil: at("until"), Observed: at("observed"),
		Movable:    strings.Contains(line, " movable"),
		Leadership: s.leadership(options)}
	if x := s.transactions[options["txn"]]; x != nil {
		c.Transaction, c.Begun = x.Id, x.Begun
	}
	switch x := q.Command.(type) {
	case *kvpb.Request_Get:
		x.Get.Context = c
	case *kvpb.Request_BatchGet:
		x.BatchGet.Context = c
	case *kvpb.Request_Scan:
		x.Scan.Context, x.Scan.UncertainUntil = c, nil
	case *kvpb.Request_Count:
		x.Count.Context, x.Count.UncertainUntil = c, nil
	}
}

// ringTimers does what a replica's timers do, for a test that has none (hooks.lockTime): those of
// what waits for a lock, those of answers that wait for the clocks, and those of reads that wait
// for what is closed.
func (m *member) ringTimers() {
	r := m.replica
	r.eval.ReevaluateWaiters()
	r.m.HeldAnswers.ReleasePassed()
	r.reads.RunTimers()
}
