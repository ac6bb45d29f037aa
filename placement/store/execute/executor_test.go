package execute

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone is a Machine that lets everything in, and the Group of a leader without followers. Entries
// stay in its log until apply.
type alone struct {
	mu      sync.Mutex
	entries [][]byte
	applied uint64
}

func (*alone) Prepare(_ context.Context, c *storepb.Command) (*storepb.Command, error) {
	return c, nil
}
func (*alone) Reserve(context.Context, *storepb.Command) (uint64, error) { return 0, nil }
func (*alone) Release(uint64)                                            {}
func (*alone) Members() *storepb.Members                                 { return nil }
func (*alone) AppliedIndex() uint64                                      { return 0 }
func (*alone) Reach(context.Context, uint64) error                       { return nil }

func (a *alone) Propose(_ uint64, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, data)
	return nil
}

func (a *alone) ProposeChange(term uint64, data []byte, _ group.Configuration) error {
	return a.Propose(term, data)
}

// apply applies the log in a term, and returns the commands.
func (a *alone) apply(t *testing.T, x *Executor, term uint64) (all []*storepb.Command) {
	a.mu.Lock()
	entries := a.entries
	a.entries = nil
	a.mu.Unlock()
	var answers []Answer
	for _, e := range entries {
		if err := command.Each(e, func(data []byte) error {
			c, _, err := command.Decode(data)
			if err != nil {
				return err
			}
			a.applied++
			all = append(all, c)
			answers = append(answers,
				Answer{ID{c.Origin, c.Request}, &storepb.Result{Revision: a.applied}})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	x.Settle(x.EntriesApplied(term, answers).Known)
	return all
}

func lone(t *testing.T) (*Executor, *alone) {
	a := &alone{}
	x := New(Config{Name: "a store", Machine: a, MaxPending: 100, MaxPendingBytes: 1 << 20,
		GroupCommands: true, Origin: 9, Latency: prometheus.NewHistogram(prometheus.HistogramOpts{})})
	x.SetGroup(a)
	t.Cleanup(x.Stop)
	return x, a
}

func lead(term uint64) group.Leadership {
	return group.Leadership{Term: term, Leader: 1, IsLeader: true}
}

func put(key string) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{Success: []*storepb.Op{
		{Op: &storepb.Op_Put{Put: &storepb.Put{Key: []byte(key)}}}}}}}
}

// Commands that come while an entry is under way share the next one, and each has its own outcome.
func TestCommandsShareAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a := lone(t)
		x.SetLeadership(lead(1))
		a.apply(t, x, 1)
		var running sync.WaitGroup
		revisions := make(chan uint64, 10)
		for range cap(revisions) {
			running.Go(func() {
				result, err := x.Do(t.Context(), put("k"))
				if err != nil {
					t.Error(err)
				}
				revisions <- result.GetRevision()
			})
			synctest.Wait()
		}
		if first := len(a.apply(t, x, 1)); first != 1 {
			t.Errorf("the first entry has %d commands", first)
		}
		synctest.Wait()
		if n := len(a.entries); n != 1 {
			t.Errorf("%d entries for what came meanwhile", n)
		}
		a.apply(t, x, 1)
		running.Wait()
		close(revisions)
		seen := map[uint64]bool{}
		for r := range revisions {
			if seen[r] || r == 0 {
				t.Errorf("two commands have revision %d", r)
			}
			seen[r] = true
		}
	})
}

// A command that was registered under one leadership is not proposed under the next, in which it
// counts as superseded.
func TestJoinAfterTheLeadershipEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a := lone(t)
		x.SetLeadership(lead(1))
		own := x.own(put("k"))
		data, err := command.Encode(own)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.enter(t.Context(), len(data)); err != nil {
			t.Fatal(err)
		}
		p := newPending(len(data))
		p.term, p.survives = 1, true
		id := ID{own.Origin, own.Request}
		if _, err := x.register(id, p); err != nil {
			t.Fatal(err)
		}
		x.SetLeadership(group.Leadership{Term: 2}) // the caller stands still meanwhile
		x.join(id, p, data)
		x.SetLeadership(lead(3))
		if done := a.apply(t, x, 3); len(done) > 0 {
			t.Errorf("%v was proposed", done)
		}
		if o := <-p.outcome; !errors.Is(o.err, errNever) {
			t.Fatalf("the outcome of the first attempt: %v", o.err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := x.Execute(t.Context(), put("k"))
			done <- err
		}()
		synctest.Wait()
		if n := len(a.apply(t, x, 3)); n != 1 {
			t.Errorf("it was proposed %d times", n)
		}
		if err := <-done; err != nil || x.mu.grouping.underWay != 0 {
			t.Errorf("%v, %d entries under way", err, x.mu.grouping.underWay)
		}
	})
}

// A command that has its number counts as not settled, whatever is registered after it.
func TestNumberedCommandsAreNotSettled(t *testing.T) {
	x, _ := lone(t)
	x.requests.Store(settledEvery - 2)
	named := func(key string) (*storepb.Command, ID) {
		c, p := put(key), newPending(100)
		c.Origin, p.term = 9, 2
		if err := x.enter(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		id, err := x.expect(p, c)
		if err != nil {
			t.Fatal(err)
		}
		return c, id
	}
	_, first := named("a")
	second, _ := named("b")
	if second.Request != settledEvery || second.Acknowledged >= first.Request {
		t.Errorf("command %d says that %d is settled, and %d is not", second.Request,
			second.Acknowledged, first.Request)
	}
}

// What is under way when a snapshot is installed may be in it: the outcome is unknown.
func TestEntriesSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a := lone(t)
		x.SetLeadership(lead(1))
		a.apply(t, x, 1)
		done := make(chan error, 1)
		go func() {
			_, err := x.Execute(t.Context(), put("k"))
			done <- err
		}()
		synctest.Wait()
		x.EntriesSkipped(2)
		if err := <-done; !errors.Is(err, command.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if commands, bytes := x.Pending(); commands != 0 || bytes != 0 {
			t.Errorf("%d commands with %d bytes are pending", commands, bytes)
		}
	})
}

// A command that another member hands over twice, because no answer came, is proposed once.
func TestHandedOverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a := lone(t)
		x.SetLeadership(lead(1))
		a.apply(t, x, 1)
		c := put("k")
		c.Origin, c.Request = 7, 1
		data, err := command.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan *storepb.Result, 2)
		for range cap(results) {
			go func() {
				answer, err := x.ServeExecute(t.Context(), 1, data)
				result := &storepb.Result{}
				if err == nil {
					err = proto.Unmarshal(answer, result)
				}
				if err != nil {
					t.Error(err)
				}
				results <- result
			}()
			synctest.Wait()
		}
		if n := len(a.apply(t, x, 1)); n != 1 {
			t.Errorf("it was proposed %d times", n)
		}
		if first, again := <-results, <-results; first.Code == again.Code ||
			first.Code+again.Code != storepb.Code_PROPOSED_BEFORE {
			t.Errorf("%v, and %v", first, again)
		}
		if _, err := x.ServeExecute(t.Context(), 2, data); !errors.Is(err, command.ErrNotLeader) {
			t.Errorf("in another term: %v", err)
		}
	})
}

// A leader that wanted to hand over its leadership, and leads on in the same term, does not propose
// again what it has proposed for another member.
func TestHandedOverAroundAFailedTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, a := lone(t)
		x.SetLeadership(lead(1))
		a.apply(t, x, 1)
		c := put("k")
		c.Origin, c.Request = 7, 1
		data, err := command.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		ask := func() {
			_, _ = x.ServeExecute(t.Context(), 1, data) // what becomes of it is known from the log
		}
		go ask()
		synctest.Wait()
		x.SetLeadership(group.Leadership{Term: 1})
		x.SetLeadership(lead(1))
		go ask()
		synctest.Wait()
		if n := len(a.apply(t, x, 1)); n != 1 {
			t.Errorf("it was proposed %d times", n)
		}
	})
}

// unsteady are peers of which the leader does not answer the first time.
type unsteady struct {
	mu    sync.Mutex
	asked int
}

func (u *unsteady) Execute(_ context.Context, _ keys.ReplicaID, _ uint64, _ []byte) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.asked++; u.asked == 1 {
		return nil, errors.New("the connection is broken")
	}
	return proto.Marshal(&storepb.Result{Revision: 7})
}

// A member forwards a command that never arrives, and hears nothing of the leader for a moment. The
// same leader then leads in the same term: it is asked again.
func TestForwardedAgainToTheSameLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, peers := &alone{}, &unsteady{}
		x := New(Config{Name: "a store", Machine: a, MaxPending: 100, MaxPendingBytes: 1 << 20,
			Peers: peers, Origin: 9, Latency: prometheus.NewHistogram(prometheus.HistogramOpts{})})
		x.SetGroup(a)
		defer x.Stop()
		x.SetLeadership(group.Leadership{Term: 1, Leader: 2})
		var running sync.WaitGroup
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if result, err := x.Execute(ctx, put("k")); err != nil || result.GetRevision() != 7 {
				t.Errorf("%v, %v", result, err)
			}
		})
		synctest.Wait()
		x.SetLeadership(group.Leadership{Term: 1})
		time.Sleep(10 * againAfter)
		x.SetLeadership(group.Leadership{Term: 1, Leader: 2})
		running.Wait()
	})
}
