package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// cut is keyspace 7 as it is partitioned now.
type cut struct {
	mu sync.Mutex
	// now are its partitions, in order.
	now []*route.Partition
	// shown is what a table shows that is behind; nil: now.
	shown []*route.Partition
}

func part(id keys.PartitionID, generation uint64, start, end string) *route.Partition {
	return &route.Partition{ID: id, Keyspace: 7, Generation: generation,
		Span: keys.Span{Start: []byte(start), End: []byte(end)}}
}

func (c *cut) set(now ...*route.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// partitions is a PushSender's.
func (c *cut) partitions(_ *route.Table, a area) (over []*route.Partition, covered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.now
	if c.shown != nil {
		all = c.shown
	}
	if a.whole {
		return all, true
	}
	at := a.span.Start
	for _, p := range all {
		if p.Span.Overlaps(a.span) {
			over = append(over, p)
		}
		if p.Span.Contains(at) {
			at = p.Span.End
			covered = covered || len(at) == 0 || string(at) >= string(a.span.End) && len(a.span.End) > 0
		}
	}
	return over, covered
}

func (c *cut) holder(call *route.Call) *route.Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.now, func(p *route.Partition) bool { return p.Span.Contains(call.Key) })
	return c.now[i]
}

// cutUp runs a test of a PushSender whose keyspace 7 is cut up.
func cutUp(t *testing.T, now []*route.Partition,
	test func(t *testing.T, s *PushSender, f *fakeSender, c *cut)) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		c := &cut{now: now}
		s.partitions, f.holder = c.partitions, c.holder
		s.dropped = func(*route.Table, keys.KeyspaceID) bool { return false }
		test(t, s, f, c)
	})
}

// resolving begins a Resolve; its result is in settled when nothing moves.
func resolving(s *PushSender, all ...Committed) (settled *[]bool) {
	settled = new([]bool)
	go func() { *settled = s.Resolve(context.Background(), all) }()
	return settled
}

// asked takes the calls that are on their way, which go to the partitions that begin at some keys.
func asked(t *testing.T, f *fakeSender, starts ...string) []*fakeCall {
	t.Helper()
	synctest.Wait()
	calls := make([]*fakeCall, len(starts))
	for range len(f.calls) {
		call := <-f.calls
		i := slices.Index(starts, string(call.Key))
		if i < 0 || calls[i] != nil {
			t.Fatalf("the partition from %q was asked, and not once each from %q", call.Key, starts)
		}
		calls[i] = call
	}
	if i := slices.Index(calls, nil); i >= 0 {
		t.Fatalf("the partition from %q was not asked", starts[i])
	}
	return calls
}

func (c *fakeCall) ok() { c.answer <- &kvpb.Response{} }

func expect(t *testing.T, settled *[]bool, want ...bool) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(*settled, want) {
		t.Fatalf("settled %v, want %v", *settled, want)
	}
}

// A participant that has split while the request was on its way is asked in both halves: the node
// refuses the request by its epoch, and it is not enough that the half answers which the sender
// then takes it to.
func TestBothHalvesOfAParticipantAreAsked(t *testing.T) {
	cutUp(t, []*route.Partition{part(1, 1, "", "")}, func(t *testing.T, s *PushSender, f *fakeSender,
		c *cut) {
		for _, answers := range []bool{false, true} {
			c.set(part(1, 1, "", ""))
			settled := resolving(s, committedIn(1, between(7, "b", "x")), committedIn(2, point(7, "c")))
			call := asked(t, f, "")[0]
			c.set(part(1, 2, "", "m"), part(2, 2, "m", ""))
			call.answer <- stale
			halves := asked(t, f, "", "m")
			halves[0].ok()
			if answers {
				halves[1].ok()
			} else {
				halves[1].answer <- nil
			}
			// That the other one has no lock there is not known either, by this request.
			expect(t, settled, answers, answers)
			s.resting.until = nil
		}
	})
}

// A participant that has split since the transaction wrote is asked in all that has become of it,
// and only there.
func TestAParticipantIsAskedWhereItsSpanLies(t *testing.T) {
	now := []*route.Partition{part(1, 3, "", "d"), part(2, 3, "d", "h"), part(3, 3, "h", "p"),
		part(4, 3, "p", "")}
	cutUp(t, now, func(t *testing.T, s *PushSender, f *fakeSender, c *cut) {
		settled := resolving(s, committedIn(1, between(7, "d", "h"), point(7, "e")))
		calls := asked(t, f, "d", "h")
		calls[0].ok()
		synctest.Wait()
		if n := len(calls[0].Request.GetResolve().Resolutions); *settled != nil || n != 1 {
			t.Errorf("settled %v, %d lines", *settled, n)
		}
		calls[1].ok()
		expect(t, settled, true)
		// The end of the span is in it, and what is named by a key is everywhere.
		settled = resolving(s, committedIn(1, between(7, "a", "czzz")),
			committedIn(2, Participant{Keyspace: 7, First: []byte("a")},
				Participant{Keyspace: 7, First: []byte("b")}))
		for i, call := range asked(t, f, "", "d", "h", "p") {
			if n := len(call.Request.GetResolve().Resolutions); n != 1 && i > 0 || n != 2 && i == 0 {
				t.Errorf("partition %d is asked about %d transactions", i, n)
			}
			call.ok()
		}
		expect(t, settled, true, true)
	})
}

// What a merge has put together is asked there.
func TestAMergedParticipantIsAsked(t *testing.T) {
	cutUp(t, []*route.Partition{part(1, 1, "", "m"), part(2, 1, "m", "")}, func(t *testing.T,
		s *PushSender, f *fakeSender, c *cut) {
		settled := resolving(s, committedIn(1, between(7, "b", "x")))
		calls := asked(t, f, "", "m")
		calls[0].ok()
		c.set(part(1, 2, "", ""))
		calls[1].answer <- stale
		asked(t, f, "")[0].ok()
		expect(t, settled, true)
	})
}

// With a hole in the table nothing is known of what is in the hole; the rest is asked all the same.
func TestAHoleIsNotSettled(t *testing.T) {
	cutUp(t, []*route.Partition{part(1, 1, "", "d"), part(3, 1, "h", "")}, func(t *testing.T,
		s *PushSender, f *fakeSender, c *cut) {
		settled := resolving(s, committedIn(1, between(7, "b", "x")), committedIn(2, point(7, "c")),
			committedIn(3, point(7, "e")))
		for _, call := range asked(t, f, "", "h") {
			call.ok()
		}
		expect(t, settled, false, true, false)
	})
}

// A table may show two parts of a partition, with a newer one between them. Both are asked anew
// when it turns out what has become of them.
func TestPartsOfAPartitionAreAsked(t *testing.T) {
	newer := part(2, 2, "h", "p")
	now := []*route.Partition{part(1, 2, "", "h"), newer, part(3, 2, "p", "")}
	cutUp(t, now, func(t *testing.T, s *PushSender, f *fakeSender, c *cut) {
		c.shown = []*route.Partition{part(1, 1, "", "h"), newer, part(1, 1, "p", "")}
		settled := resolving(s, committedIn(1, between(7, "b", "x")))
		asked(t, f, "h")[0].ok() // the others find that it has changed, again and again
		expect(t, settled, false)

		settled = resolving(s, committedIn(1, between(7, "b", "x")))
		call := asked(t, f, "h")[0]
		c.mu.Lock()
		c.shown = nil
		c.mu.Unlock()
		call.ok()
		for _, call := range asked(t, f, "", "p") {
			call.ok()
		}
		expect(t, settled, true)
	})
}

// store is keyspace 7 with the locks in it, while partitions split and merge all the time.
type store struct {
	cut
	random *rand.Rand
	// locks are the keys that a transaction has locked, by its number.
	locks map[byte]map[string]bool
	next  keys.PartitionID
	// still: nothing splits or merges any more, and all answer.
	still bool
}

// changeLocked splits a partition, or merges two.
func (m *store) changeLocked() {
	i := m.random.IntN(len(m.now))
	p := m.now[i]
	if m.random.IntN(2) == 0 && i+1 < len(m.now) {
		right := m.now[i+1]
		merged := part(p.ID, max(p.Generation, right.Generation)+1, string(p.Span.Start),
			string(right.Span.End))
		m.now = slices.Replace(slices.Clone(m.now), i, i+2, merged)
		return
	}
	if at := fmt.Sprintf("%02d", m.random.IntN(100)); at != string(p.Span.Start) &&
		p.Span.Contains([]byte(at)) {
		m.next++
		m.now = slices.Replace(slices.Clone(m.now), i, i+1,
			part(p.ID, p.Generation+1, string(p.Span.Start), at),
			part(m.next, p.Generation+1, at, string(p.Span.End)))
	}
}

func (m *store) Subscribe(*route.Keyspace) {}
func (m *store) Close()                    {}
func (m *store) AwaitTable(context.Context) (*route.Table, error) {
	return &route.Table{}, nil
}

// Do does what a route.Sender does, and the nodes behind it.
func (m *store) Do(_ context.Context, call *route.Call) (route.Answer, error) {
	for {
		p := m.holder(call)
		if err := call.Prepare.Prepare(p, route.Leader{}); err != nil {
			return route.Answer{}, &route.Error{Cause: err}
		}
		m.mu.Lock()
		if !m.still && m.random.IntN(3) == 0 {
			m.changeLocked()
		}
		if !m.still && m.random.IntN(30) == 0 {
			m.mu.Unlock()
			return route.Answer{}, &route.Error{Code: kvpb.ErrorCode_NO_QUORUM}
		}
		if !slices.ContainsFunc(m.now, func(q *route.Partition) bool {
			return q.ID == p.ID && q.Generation == p.Generation
		}) {
			m.mu.Unlock()
			continue // refused as stale
		}
		for _, r := range call.Request.GetResolve().Resolutions {
			for key := range m.locks[r.Transaction[15]] {
				if p.Span.Contains([]byte(key)) {
					delete(m.locks[r.Transaction[15]], key)
				}
			}
		}
		m.mu.Unlock()
		return route.Answer{Response: &kvpb.Response{}}, nil
	}
}

// However partitions split and merge: no lock is left of a transaction that is settled. When they
// have come to rest, all are settled.
func TestNoLockIsLeftOfWhatIsSettled(t *testing.T) {
	settledInMotion := 0
	for seed := range uint64(300) {
		m := &store{random: rand.New(rand.NewPCG(seed, 1)), next: 1, locks: map[byte]map[string]bool{}}
		m.now = []*route.Partition{part(1, 1, "", "")}
		for range 10 {
			m.changeLocked()
		}
		s := NewPushSender(PushSenderConfig{Open: func() (Sender, error) { return m, nil }})
		s.partitions = m.partitions
		s.dropped = func(*route.Table, keys.KeyspaceID) bool { return false }
		var all []Committed
		for n := range byte(8) {
			m.locks[n] = map[string]bool{}
			var participants []Participant
			for range 1 + m.random.IntN(3) {
				span := []string{}
				for range 1 + m.random.IntN(4) {
					key := fmt.Sprintf("%02d", m.random.IntN(100))
					span = append(span, key)
					m.locks[n][key] = true
				}
				participants = append(participants, between(7, slices.Min(span), slices.Max(span)))
			}
			if n == 0 {
				participants = []Participant{{Keyspace: 7, First: []byte("a")}}
			}
			all = append(all, committedIn(n, participants...))
		}
		for m.still = false; ; m.still = true {
			settled := s.Resolve(context.Background(), all)
			for n, ok := range settled {
				switch {
				case ok && len(m.locks[byte(n)]) > 0:
					t.Fatalf("seed %d: settled, and yet there are %v; %+v", seed, m.locks[byte(n)], all[n])
				case ok:
					settledInMotion++
				case m.still:
					t.Fatalf("seed %d: %+v is not settled", seed, all[n])
				}
			}
			if m.still {
				break
			}
			s.resting.until = nil
		}
		s.Close()
	}
	if settledInMotion < 300 {
		t.Errorf("only %d were settled", settledInMotion)
	}
}
