package replica

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// errorBound says how far a clock may be from true time.
type errorBound time.Duration

func (b errorBound) MaxError() (int64, bool) { return int64(b), true }

// waitingServer is a server that leads a partition of its own, and has a clock of its own.
type waitingServer struct {
	*scenario
	m *member
}

// newWaitingServer makes one whose clock is off from true time, and knows how far at most.
func newWaitingServer(t *testing.T, present *hlc.Manual, off, known time.Duration) *waitingServer {
	s := &waitingServer{scenario: &scenario{t: t, c: newTestCluster(t, 1, config.Limits{})}}
	t.Cleanup(s.close)
	s.c.physical, s.m = present, s.c.members[0]
	s.m.skew = off
	s.m.setClock(hlc.NewClock(s.m, errorBound(known)))
	s.c.elect(s.m)
	s.m.catchUp(-1)
	at := &kvpb.Timestamp{Wall: uint64(epoch)}
	s.transactions = map[string]*kvpb.Transaction{"T": {Id: transactionID("T"), Keyspace: 7,
		Anchor: []byte("k"), Begun: at, Started: at}}
	return s
}

// ask sends requests and lets time pass until the first answer.
func (s *waitingServer) ask(lines ...string) *kvpb.Response {
	for _, line := range lines {
		s.m.replica.Submit([]config.Pending{s.parseRequest(line)})
		s.m.commit(-1)
		s.m.catchUp(-1)
	}
	for range 100_000 {
		s.c.settle()
		if answers := s.answers.take(); len(answers) > 0 {
			if answers[0].Error != nil {
				s.t.Fatal(describe(answers[0]))
			}
			return answers[0]
		}
		s.c.physical.Advance(10 * time.Microsecond)
		s.m.ringTimers()
	}
	s.t.Fatal("no answer")
	return nil
}

// TestCommitsThatWaitAreInTheOrderOfRealTime: of two commits that wait, on servers each of which
// knows how far its clock may be off, the one that is requested when the other is known has the
// later timestamp, although its server's clock is behind.
func TestCommitsThatWaitAreInTheOrderOfRealTime(t *testing.T) {
	ways := map[string]func(*waitingServer) hlc.Timestamp{
		"one phase": func(s *waitingServer) hlc.Timestamp {
			return wire.FromTimestamp(s.ask("prepare T k=v one-phase wait").GetPrepare().Prepared)
		},
		"two phases": func(s *waitingServer) hlc.Timestamp {
			return s.end(s.ask("prepare T k=v wait"))
		},
		"two phases, in a keyspace that waits": func(s *waitingServer) hlc.Timestamp {
			s.m.replica.eval.SetCommitWait(true)
			return s.end(s.ask("prepare T k=-"))
		},
		"put in a keyspace that waits": func(s *waitingServer) hlc.Timestamp {
			s.m.replica.eval.SetCommitWait(true)
			return wire.FromTimestamp(s.ask("put k v").GetPut().Version)
		},
		"batch in a keyspace that waits": func(s *waitingServer) hlc.Timestamp {
			s.m.replica.eval.SetCommitWait(true)
			return wire.FromTimestamp(s.ask("batch k=v,l=w").GetWriteBatch().Version)
		},
	}
	for before, first := range ways {
		for after, second := range ways {
			now := hlc.NewManual(epoch)
			exact := newWaitingServer(t, now, 0, time.Millisecond)
			slow := newWaitingServer(t, now, -40*time.Millisecond, 50*time.Millisecond)
			if one, two := first(exact), second(slow); two.LessEq(one) {
				t.Errorf("%s at %s, and then %s at %s", before, stamp(one), after, stamp(two))
			}
		}
	}
}

// end commits the transaction where it is prepared.
func (s *waitingServer) end(prepared *kvpb.Response) hlc.Timestamp {
	at := prepared.GetPrepare().Prepared
	s.id++
	q := &kvpb.Request{Id: s.id, Partition: 100, Generation: 1, Term: s.c.term, Sequence: s.id,
		Command: &kvpb.Request_EndTransaction{
			EndTransaction: &kvpb.EndTransactionRequest{Transaction: s.transactions["T"], Commit: true,
				CommitTimestamp: at, CommitWait: true}}}
	s.m.replica.Submit([]config.Pending{{Client: 1, Request: q, Reply: s.answers.reply,
		Arrived: time.Now()}})
	s.m.commit(-1)
	s.m.catchUp(-1)
	return wire.FromTimestamp(s.ask().GetEndTransaction().Status.Timestamp)
}

// TestLocksAreAcquiredInThePresent: a lock that is only read under does not wait for the clocks, so
// its timestamp is not ahead of them.
func TestLocksAreAcquiredInThePresent(t *testing.T) {
	s := newWaitingServer(t, hlc.NewManual(epoch), 0, 50*time.Millisecond)
	s.m.replica.eval.SetCommitWait(true)
	now := s.m.Now()
	if at := s.ask("prepare T k=lock values").GetPrepare().Prepared; int64(at.Wall) != now {
		t.Errorf("prepared at %s, the clock stands at %s", wireStamp(at),
			stamp(hlc.Timestamp{Wall: now}))
	}
}

// TestNextLeaderIsAboveCommitsThatWait: a leader has read at a timestamp that another server, with
// a clock as far off as may be, has given to a commit that waits. The next leader's clock is as far
// behind as may be, and it writes above that read.
func TestNextLeaderIsAboveCommitsThatWait(t *testing.T) {
	s := &scenario{t: t, c: newTestCluster(t, 2, config.Limits{})}
	defer s.close()
	first, next := s.c.members[0], s.c.members[1]
	first.skew = hlc.DefaultMaxOffset
	for _, m := range s.c.members {
		m.setClock(hlc.NewClock(m, errorBound(hlc.DefaultMaxOffset)))
	}
	lead := func(m *member) {
		s.c.elect(m)
		for _, each := range s.c.members {
			each.catchUp(-1)
		}
	}
	lead(first)
	s.c.physical.Advance(10 * time.Second)
	given := hlc.NewClock(first, errorBound(hlc.DefaultMaxOffset)).WaitFloor()
	submit := func(m *member, line string, session hlc.Timestamp) *kvpb.Response {
		p := s.parseRequest(line)
		p.Request.Session = wire.ToTimestamp(session)
		m.replica.Submit([]config.Pending{p})
		m.commit(-1)
		m.catchUp(-1)
		s.c.settle()
		answers := s.answers.take()
		if len(answers) != 1 || answers[0].Error != nil {
			t.Fatal(line, answers)
		}
		return answers[0]
	}
	submit(first, "scan a z", given)
	lead(next)
	if at := wire.FromTimestamp(submit(next, "put k v", hlc.Timestamp{}).GetPut().Version); at.LessEq(
		given) {
		t.Errorf("written at %s, where nothing was read at %s", stamp(at), stamp(given))
	}
}
