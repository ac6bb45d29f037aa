package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestWaitersGoOn: transactions of all ages lock the same few keys, hold them for long, die or
// leave their locks behind, between plain writes and reads; requests come twice; and the
// coordinator, which is another partition, is reached by questions of which some are refused at
// once, lost, answered late or for nothing, brought twice. Leaders change and proposals are lost.
// Now and then all of that works for a while, and then nothing may wait for long
//
//   - for a transaction that is decided, or that nothing was heard of,
//   - for a younger transaction,
//   - to read.
//
// That a younger transaction waits for an older one as long as that lives is as it should be. In
// the end nothing is locked.
func TestWaitersGoOn(t *testing.T) {
	for seed := range uint64(8 + *moreSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newWaitingWorld(t, seed).run() })
		})
	}
}

const (
	// A question that is lost is given up after this time, as by a txn.PushSender.
	modelPushTimeout = 2 * time.Second
	// By then what was lost has been asked again.
	modelRecovery = modelPushTimeout + 500*time.Millisecond
	// modelPatience is how long a request waits that need not, where everything works: a repeated
	// question, its way and what follows.
	modelPatience = 700 * time.Millisecond
)

// waitingWorld is a replica that leads, and the clients and coordinators around it.
type waitingWorld struct {
	t *testing.T
	c *testCluster
	m *member
	// calm: everything works.
	calm     atomic.Bool
	sequence atomic.Uint64
	// clients are the clients with their hearts, questions what is on its way to the coordinator.
	clients, questions sync.WaitGroup

	mu      sync.Mutex
	random  *rand.Rand
	records map[txn.ID]*txn.Record
	// counts are of what has happened, so that it can be seen that it does.
	counts map[string]int
}

// waitingPair is a request that waits for a transaction.
type waitingPair struct {
	request *kvpb.Request
	holder  txn.ID
}

func newWaitingWorld(t *testing.T, seed uint64) *waitingWorld {
	w := &waitingWorld{t: t, random: rand.New(rand.NewPCG(seed, 5)),
		records: map[txn.ID]*txn.Record{}, counts: map[string]int{}}
	w.c = newTestCluster(t, 1, config.Limits{MaxLockWaiters: 40})
	w.c.now = func() int64 { return time.Now().UnixNano() }
	w.m = w.c.members[0]
	w.m.node.Pusher, w.m.node.Hooks.LockTime, w.m.node.locking.Random = w, nil, w.uint64
	w.c.elect(w.m)
	w.m.catchUp(-1)
	return w
}

func (w *waitingWorld) uint64() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.Uint64()
}

// chance is true with a probability.
func (w *waitingWorld) chance(percent uint64) bool { return w.uint64()%100 < percent }

// trouble is chance, unless everything works.
func (w *waitingWorld) trouble(percent uint64) bool { return !w.calm.Load() && w.chance(percent) }

// between is a time up to max.
func (w *waitingWorld) between(max time.Duration) time.Duration {
	return time.Duration(w.uint64() % uint64(max))
}

func (w *waitingWorld) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// trip takes as long as a message.
func (w *waitingWorld) trip() {
	if w.trouble(20) {
		time.Sleep(w.between(400 * time.Millisecond))
	}
	time.Sleep(w.between(10 * time.Millisecond))
}

// decide has the coordinator decide about a transaction.
func (w *waitingWorld) decide(id txn.ID,
	rule func(*txn.Record, txn.Present) txn.Decision) txn.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UnixNano()
	d := rule(w.records[id], txn.Present{Physical: now, Now: hlc.Timestamp{Wall: now}})
	if d.Record != nil {
		w.records[id] = d.Record
	}
	return d
}

// wasAborted says that the coordinator has aborted a transaction.
func (w *waitingWorld) wasAborted(id txn.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.records[id]
	return r.Decided() && r.State == kvpb.TransactionState_ABORTED
}

// Push implements txn.Pusher.
func (w *waitingWorld) Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error)) {
	push, err := txn.ParsePush(q)
	if err != nil {
		w.t.Error(err)
	}
	if w.trouble(10) {
		w.count("refused")
		done(nil, txn.ErrPushersBusy)
		return
	}
	w.questions.Go(func() {
		begun := time.Now()
		lose := func(what string) {
			w.count(what)
			time.Sleep(modelPushTimeout - min(modelPushTimeout, time.Since(begun)))
			done(nil, errors.New(what))
		}
		w.trip()
		if w.trouble(15) {
			lose("question lost")
			return
		}
		ask := func() txn.Decision {
			return w.decide(push.Pushee.ID,
				func(r *txn.Record, p txn.Present) txn.Decision { return txn.DecidePush(r, push, p) })
		}
		d := ask()
		if w.trouble(20) {
			w.questions.Go(func() { // it comes twice
				w.trip()
				ask()
			})
		}
		if w.trouble(15) {
			lose("answer lost")
			return
		}
		w.trip()
		w.count(d.Status.GetState().String() + " " + q.Kind.String())
		done(d.Status, nil)
	})
}

// send brings a request to the replica. The answer may never be taken.
func (w *waitingWorld) send(client uint64, q *kvpb.Request) <-chan *kvpb.Response {
	answer := make(chan *kvpb.Response, 1)
	w.c.mu.Lock()
	term := w.c.term
	w.c.mu.Unlock()
	sent := &kvpb.Request{Id: q.Sequence, Generation: 1, Term: term, Sequence: q.Sequence,
		TimeoutMicros: q.TimeoutMicros, Command: q.Command}
	w.m.replica.Submit([]config.Pending{{Client: client, Request: sent, Arrived: time.Now(),
		Reply: func(r *kvpb.Response) { answer <- kept(r) }}})
	return answer
}

// do sends a request again and again, and sometimes once more while it waits. It returns nil if
// stop is closed first.
func (w *waitingWorld) do(client uint64, command *kvpb.Request,
	stop <-chan struct{}) *kvpb.Response {
	command.Sequence = w.sequence.Add(1)
	for {
		answer := w.send(client, command)
		again := time.After(time.Hour)
		if w.chance(20) {
			again = time.After(w.between(time.Second))
		}
		select {
		case <-stop:
			return nil
		case <-again:
			w.count("sent twice")
			continue // the first answer is not taken
		case response := <-answer:
			switch response.GetError().GetCode() {
			case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_OUTCOME_UNKNOWN, kvpb.ErrorCode_OVERLOADED,
				kvpb.ErrorCode_LOCKED, kvpb.ErrorCode_DEADLINE_EXCEEDED:
				w.count(response.Error.Code.String())
				time.Sleep(10*time.Millisecond + w.between(20*time.Millisecond))
				continue
			}
			return response
		}
	}
}

var waitingKeys = []string{"b", "c", "d"}

func (w *waitingWorld) key() []byte {
	return []byte(waitingKeys[w.uint64()%uint64(len(waitingKeys))])
}

// timeout is how long a request waits: sometimes not long, mostly longer than the world lasts.
func (w *waitingWorld) timeout() uint64 {
	if w.chance(30) {
		return uint64(w.between(2*time.Second)/time.Microsecond) + 1
	}
	return uint64(time.Hour / time.Microsecond)
}

// transact runs transactions until ctx ends. One that is aborted runs again, mostly as old as it
// was.
func (w *waitingWorld) transact(ctx context.Context, client uint64) {
	var begun hlc.Timestamp
	for ctx.Err() == nil {
		time.Sleep(w.between(300 * time.Millisecond))
		// Estimates of the time differ.
		now := hlc.Timestamp{Wall: time.Now().UnixNano() - int64(w.between(50*time.Millisecond))}
		if begun.IsZero() || w.chance(10) {
			begun = now
		}
		of := txn.Info{Begun: begun, Started: hlc.Max(begun, now), Keyspace: 7, Anchor: []byte("k")}
		for of.ID.IsZero() {
			a, b := w.uint64(), w.uint64()
			of.ID = txn.ID(fmt.Appendf(nil, "%08x%08x", uint32(a), uint32(b)))
		}
		if w.attempt(ctx, client, of) {
			begun = hlc.Timestamp{}
		}
	}
}

// attempt locks some keys, holds them for a while, and ends, in one way or another. It returns
// false if it was aborted.
func (w *waitingWorld) attempt(ctx context.Context, client uint64, of txn.Info) bool {
	aborted := make(chan struct{})
	ctx, still := context.WithCancel(ctx)
	defer still()
	w.clients.Go(func() { // the heart
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(txn.HeartbeatInterval):
			}
			d := w.decide(of.ID, func(r *txn.Record, p txn.Present) txn.Decision {
				return txn.DecideHeartbeat(r, &txn.Heartbeat{Transaction: of}, p)
			})
			if d.Status.GetState() == kvpb.TransactionState_ABORTED {
				close(aborted)
				return
			}
		}
	})
	kind := kvpb.Mutation_PUT
	if w.chance(50) {
		kind = kvpb.Mutation_LOCK
	}
	commit := hlc.Timestamp{}
	for range 1 + w.uint64()%2 {
		mutation := &kvpb.Mutation{Kind: kind, Key: w.key()}
		response := w.do(client,
			&kvpb.Request{TimeoutMicros: w.timeout(),
				Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
					Transaction: of.Proto(), Mutations: []*kvpb.Mutation{mutation}}}}, aborted)
		switch {
		case response == nil:
			w.end(client, of, hlc.Timestamp{})
			return false
		case response.GetError().GetCode() == kvpb.ErrorCode_TRANSACTION_ABORTED && w.wasAborted(of.ID):
			w.count("cancelled")
			w.end(client, of, hlc.Timestamp{})
			return false
		case response.GetPrepare() == nil:
			w.t.Errorf("prepare: %s", describe(response))
			return false
		}
		commit = hlc.Max(commit, wire.FromTimestamp(response.GetPrepare().Prepared))
	}
	held := w.between(100 * time.Millisecond)
	if w.chance(30) {
		held = w.between(8 * time.Second)
	}
	select {
	case <-time.After(held):
	case <-aborted:
		w.end(client, of, hlc.Timestamp{})
		return false
	}
	switch {
	case w.chance(15):
		w.count("died")
		return true
	case w.chance(20):
		commit = hlc.Timestamp{}
	}
	return w.end(client, of, commit)
}

// end commits, or aborts if the timestamp is zero, and sometimes resolves. It returns false if the
// transaction was aborted before.
func (w *waitingWorld) end(client uint64, of txn.Info, commit hlc.Timestamp) bool {
	var d txn.Decision
	for {
		d = w.decide(of.ID, func(r *txn.Record, p txn.Present) txn.Decision {
			end := &txn.End{Transaction: of, Commit: !commit.IsZero(), Timestamp: commit}
			return txn.DecideEnd(r, end, p)
		})
		if d.Refused == nil || d.Refused.Code != kvpb.ErrorCode_TRANSACTION_PUSHED {
			break
		}
		commit = d.Refused.Timestamp.Next()
	}
	status := d.Status
	if d.Refused != nil {
		status = &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED}
	}
	w.count("ended " + status.State.String())
	if w.chance(60) {
		response := w.do(client,
			&kvpb.Request{TimeoutMicros: w.timeout(),
				Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
					Resolutions: []*kvpb.Resolution{{Transaction: of.ID.Bytes(), Status: status}}}}}, nil)
		if response.GetResolve() == nil {
			w.t.Errorf("resolve: %s", describe(response))
		}
	}
	return d.Refused == nil
}

// single sends plain writes and reads until ctx ends.
func (w *waitingWorld) single(ctx context.Context, client uint64) {
	for ctx.Err() == nil {
		time.Sleep(w.between(500 * time.Millisecond))
		q := &kvpb.Request{TimeoutMicros: w.timeout(),
			Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: w.key(), Value: []byte("plain")}}}
		if w.chance(50) {
			q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: w.key(),
				Context: &kvpb.ReadContext{}}}
		}
		if response := w.do(client, q, nil); response.Error != nil {
			w.t.Errorf("%s", describe(response))
		}
	}
}

// lead commits what is proposed, or loses it.
func (w *waitingWorld) lead(ctx context.Context) {
	for next := time.Now(); ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if now := time.Now(); now.After(next) && !w.calm.Load() {
			next = now.Add(w.between(500 * time.Millisecond))
			switch w.uint64() % 4 {
			case 0:
				w.count("elected")
				w.c.elect(w.m)
			case 1:
				w.count("dropped")
				w.m.drop(1)
				w.m.mu.Lock()
				l := w.m.leadership
				w.m.mu.Unlock()
				w.m.tell(l)
			case 2:
				time.Sleep(w.between(300 * time.Millisecond))
			}
		}
		w.m.commit(-1)
		w.m.catchUp(-1)
	}
}

// overdue are the requests that wait and need not, or should not have to.
func (w *waitingWorld) overdue() map[waitingPair]string {
	found := map[waitingPair]string{}
	r := w.m.replica
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	r.m.Mu.Locks.Writes.Each(func(x *concurrency.Transaction, key string, p *concurrency.Waiter) {
		record := w.records[x.ID]
		heard := x.Acquired
		if record != nil {
			heard = max(heard, record.Heard)
		}
		why := ""
		switch {
		case p.Until() == concurrency.UntilApplied:
			why = "it waits for an entry"
		case record.Decided():
			why = "that is decided: " + record.State.String()
		case time.Duration(time.Now().UnixNano()-heard) > txn.Abandoned:
			why = "nothing was heard of that"
		case txn.Older(p.Begun, p.Transaction, x.Begun, x.ID):
			why = "that is younger"
		default:
			return
		}
		q := eval.RequestOf(p)
		found[waitingPair{q, x.ID}] = fmt.Sprintf("%s of %s waits for %s, which %s has: %s; known %+v",
			q.Command, p.Transaction, key, x.ID, why, x.Known)
	})
	r.m.Mu.Locks.Reads.Each(func(l *concurrency.Read) {
		q := l.Element.(machine.Waiter).Asked()
		found[waitingPair{request: q}] = fmt.Sprintf("%s waits", q.Command)
	})
	return found
}

// watch reports requests that are overdue for too long while everything works. It returns when that
// has been seen for a while.
func (w *waitingWorld) watch(d time.Duration) {
	since := map[waitingPair]time.Time{}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now, found := time.Now(), w.overdue()
		for pair, what := range found {
			if since[pair].IsZero() {
				since[pair] = now
			} else if waited := now.Sub(since[pair]); waited > modelPatience {
				w.t.Fatalf("for %v: %s", waited, what)
			}
		}
		for pair := range since {
			if _, still := found[pair]; !still {
				delete(since, pair)
			}
		}
	}
}

func (w *waitingWorld) run() {
	leading, depose := context.WithCancel(context.Background())
	var leader sync.WaitGroup
	leader.Go(func() { w.lead(leading) })
	leader.Go(func() { // the node's sweeps
		for leading.Err() == nil {
			time.Sleep(time.Second)
			w.m.replica.eval.SweepLocks(time.Now().UnixNano())
		}
	})
	ctx, finish := context.WithCancel(context.Background())
	defer func() {
		finish()
		w.calm.Store(true)
		w.clients.Wait()
		for range 8 {
			time.Sleep(time.Second)
		}
		depose()
		leader.Wait()
		w.questions.Wait()
		if n := w.m.replica.m.Mu.Locks.Held(); n != 0 && !w.t.Failed() {
			w.t.Errorf("in the end %d keys are locked", n)
		}
		w.c.close()
		w.t.Log(w.counts)
	}()
	for client := range uint64(6) {
		w.clients.Go(func() { w.transact(ctx, client+1) })
	}
	for client := range uint64(2) {
		w.clients.Go(func() { w.single(ctx, client+11) })
	}
	for range 3 {
		w.calm.Store(false)
		time.Sleep(4 * time.Second)
		w.calm.Store(true)
		time.Sleep(modelRecovery)
		w.watch(3 * time.Second)
	}
}
