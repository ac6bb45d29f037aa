package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// fate is what happens to a transaction on its way.
type fate uint8

const (
	passes fate = iota
	// answerLost: it is executed, and its sender does not hear of it.
	answerLost
	// requestLost: it is not executed.
	requestLost
	// late: it is executed when the test says so.
	late
)

// network decides on the fate of each transaction.
type network struct {
	choose func() fate

	mu     sync.Mutex
	delays []func()
}

// intercept is a gRPC interceptor.
func (n *network) intercept(ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if !strings.HasSuffix(method, "/Txn") {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	n.mu.Lock()
	chosen := n.choose()
	if chosen == late {
		later := proto.Clone(request.(proto.Message))
		n.delays = append(n.delays, func() {
			// Its outcome is of no interest any more.
			invoke(context.Background(), method, later, proto.Clone(reply.(proto.Message)), conn)
		})
	}
	n.mu.Unlock()
	if chosen == passes {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	if chosen == answerLost {
		if err := invoke(ctx, method, request, reply, conn, options...); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the connection was lost")
}

// arrive has what is late executed.
func (n *network) arrive() {
	n.mu.Lock()
	delays := n.delays
	n.delays = nil
	n.mu.Unlock()
	for _, f := range delays {
		f()
	}
}

// after lets the first transactions meet the given fates, and the others pass.
func after(fates ...fate) func() fate {
	return func() fate {
		if len(fates) == 0 {
			return passes
		}
		first := fates[0]
		fates = fates[1:]
		return first
	}
}

// random chooses with equal chances, and now and then has the transactions executed that are late.
func randomFates(seed uint64) func() fate {
	random := rand.New(rand.NewPCG(seed, 1))
	return func() fate { return fate(max(0, random.IntN(8)-4)) }
}

// A key whose creation has an unknown outcome is found if it was created, and otherwise does not
// appear late.
func TestUnknownOutcomeOfALock(t *testing.T) {
	for name, fates := range map[string][]fate{
		"answer lost": {answerLost}, "answers lost": {answerLost, answerLost, answerLost},
		"request lost": {requestLost}, "late": {late}, "late and late": {late, late, late},
		"late, answer lost": {late, answerLost}, "answer lost, late": {answerLost, late, late},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			n := &network{choose: after(fates...)}
			client := w.intercepted(n.intercept)
			s := w.session(client)
			lock, err := client.Mutex("m").Lock(w.ctx, s)
			w.must(err)
			if keys := w.keys("lock/"); len(keys) != 1 {
				t.Fatalf("keys %q", keys)
			}
			w.must(lock.Unlock(w.ctx))
			n.arrive()
			if keys := w.keys("lock/"); len(keys) != 0 {
				t.Fatalf("keys %q after the lock was given back", keys)
			}
			// The session can go on.
			lock, err = client.Mutex("m").TryLock(w.ctx, s)
			w.must(err)
			w.must(lock.Unlock(w.ctx))
		})
	}
}

// One that gives up while the outcome is unknown leaves no key.
func TestUnknownOutcomeOfALockGivenUp(t *testing.T) {
	for _, first := range []fate{answerLost, requestLost, late} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			w := begin(t)
			ctx, cancel := context.WithCancel(w.ctx)
			sent := 0
			n := &network{choose: func() fate {
				if sent++; sent == 1 {
					cancel()
					return first
				}
				return passes
			}}
			client := w.intercepted(n.intercept)
			s := w.session(client)
			if _, err := client.Mutex("m").Lock(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			w.until("the guard was written and the key is gone", func() bool {
				return len(w.keys("lock/")) == 0 && len(w.keys("session/")) == 1
			})
			n.arrive()
			if keys := w.keys("lock/"); len(keys) != 0 {
				t.Errorf("keys %q", keys)
			}
		})
	}
}

// One that gives up does not take away what another session has.
func TestUnknownOutcomeLeavesOthersKeys(t *testing.T) {
	w := begin(t)
	e, err := w.session(w.client()).Create(w.ctx, "a", nil)
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	sent := 0
	n := &network{choose: func() fate {
		if sent++; sent == 1 {
			cancel()
			return late
		}
		return passes
	}}
	s := w.session(w.intercepted(n.intercept))
	if _, err := s.Create(ctx, "a", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.until("the guard was written", func() bool { return len(w.keys("session/")) == 1 })
	n.arrive()
	if keys := w.keys("/a"); len(keys) != 1 {
		t.Errorf("keys %q; want that of the other session", keys)
	}
	_, err = s.Create(w.ctx, "a", nil)
	w.is(err, coord.ErrExists)
	w.must(e.Delete(w.ctx))
	_, err = s.Create(w.ctx, "a", nil)
	w.must(err)
}

// An unlock with an unknown outcome is made certain.
func TestUnknownOutcomeOfAnUnlock(t *testing.T) {
	for _, first := range []fate{answerLost, requestLost, late} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			w := begin(t)
			n := &network{choose: after()}
			client := w.intercepted(n.intercept)
			lock, err := client.Mutex("m").Lock(w.ctx, w.session(client))
			w.must(err)
			n.mu.Lock()
			n.choose = after(first, first)
			n.mu.Unlock()
			w.must(lock.Unlock(w.ctx))
			n.arrive()
			if keys := w.keys("lock/"); len(keys) != 0 {
				t.Errorf("keys %q", keys)
			}
		})
	}
}

// An unlock that is confirmed only after its session has ended says that the session has ended, and
// not that another client deleted the key.
func TestUnlockThatTheSessionDoesNotOutlive(t *testing.T) {
	for _, first := range []fate{answerLost, requestLost} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			w := begin(t)
			n := &network{choose: after()}
			client := w.intercepted(n.intercept)
			s := w.session(client, coord.TTL(time.Second))
			lock, err := client.Mutex("m").Lock(w.ctx, s)
			w.must(err)
			sent := 0
			n.mu.Lock()
			n.choose = func() fate {
				if sent++; sent == 1 {
					return first
				}
				if _, err := w.admin.Etcd().Revoke(w.ctx, s.Lease()); sent == 2 && err != nil {
					t.Error(err)
				}
				<-s.Done()
				return passes
			}
			n.mu.Unlock()
			err = lock.Unlock(w.ctx)
			w.is(err, coord.ErrSessionEnded, coord.ErrSessionExpired)
			if errors.Is(err, coord.ErrLost) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A proclamation with an unknown outcome does not come after a later one.
func TestUnknownOutcomeOfAProclamation(t *testing.T) {
	for _, first := range []fate{answerLost, requestLost, late} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			w := begin(t)
			n := &network{choose: after()}
			client := w.intercepted(n.intercept)
			leadership, err := client.Election("e").Campaign(w.ctx, w.session(client), []byte("0"))
			w.must(err)
			n.mu.Lock()
			n.choose = after(first, first)
			n.mu.Unlock()
			w.must(leadership.Proclaim(w.ctx, []byte("1")))
			w.must(leadership.Proclaim(w.ctx, []byte("2")))
			n.arrive()
			leader, err := w.admin.Election("e").Leader(w.ctx)
			w.must(err)
			if string(leader.Proposal) != "2" || leader.Token != leadership.Token() {
				t.Errorf("%+v", leader)
			}
		})
	}
}

// Under a network that loses and delays half of the transactions, numbers are given once and
// without gaps, items of a queue are there once, and locks exclude.
func TestUnreliableNetwork(t *testing.T) {
	w := begin(t)
	const clients, each = 3, 10
	var all sync.WaitGroup
	var mu sync.Mutex
	var numbers []uint64
	holder := make(chan struct{}, 1)
	var networks []*network
	for i := range clients {
		n := &network{choose: randomFates(uint64(i))}
		networks = append(networks, n)
		client := w.intercepted(n.intercept)
		s := w.session(client)
		all.Go(func() {
			for j := range each {
				made, err := client.Sequence("s").Create(w.ctx, nil, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				numbers = append(numbers, made.Number)
				mu.Unlock()
				if err := client.Queue("q").Put(w.ctx, []byte{byte(i), byte(j)}); err != nil {
					t.Error(err)
				}
				lock, err := client.Mutex("m").Lock(w.ctx, s)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case holder <- struct{}{}:
				default:
					t.Error("two hold the lock")
				}
				n.arrive()
				<-holder
				if err := lock.Unlock(w.ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, n := range networks {
		n.arrive()
	}
	slices.Sort(numbers)
	for i, number := range numbers {
		if number != uint64(i+1) {
			t.Fatalf("numbers %v", numbers)
		}
	}
	listed, err := w.admin.Sequence("s").List(w.ctx)
	w.must(err)
	if len(listed) != clients*each {
		t.Errorf("%d keys of the sequence", len(listed))
	}
	items := make(map[string]int)
	s := w.session(w.admin)
	for range clients * each {
		item, err := w.admin.Queue("q").Take(w.ctx, s)
		w.must(err)
		items[string(item.Value)]++
		w.must(item.Done(w.ctx))
	}
	if left, err := w.admin.Queue("q").Len(w.ctx); err != nil || left != 0 ||
		len(items) != clients*each {
		t.Errorf("%d items are left, %v; taken %v", left, err, items)
	}
	if keys := w.keys("lock/"); len(keys) != 0 {
		t.Errorf("keys %q", keys)
	}
}

// A take and a completion with an unknown outcome are made certain.
func TestUnknownOutcomeOfAQueue(t *testing.T) {
	for _, first := range []fate{answerLost, requestLost, late} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			w := begin(t)
			w.must(w.admin.Queue("q").Put(w.ctx, []byte("a")))
			n := &network{choose: after(first, first)}
			client := w.intercepted(n.intercept)
			item, err := client.Queue("q").Take(w.ctx, w.session(client))
			w.must(err)
			n.mu.Lock()
			n.choose = after(first, first)
			n.mu.Unlock()
			w.must(item.Done(w.ctx))
			n.arrive()
			if keys := w.keys("queue/q/claims"); len(keys) != 0 {
				t.Errorf("claims %q", keys)
			}
			if err := item.Done(w.ctx); !errors.Is(err, coord.ErrReleased) {
				t.Errorf("done again: %v", err)
			}
		})
	}
}

// A consumer that does not know whether its item is done is not told that another one took it.
func TestUnknownOutcomeOfADoneGivenUp(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := begin(t)
		w.must(w.admin.Queue("q").Put(w.ctx, []byte("a")))
		n := &network{choose: after()}
		client := w.intercepted(n.intercept)
		s := w.session(client)
		item, err := client.Queue("q").Take(w.ctx, s)
		w.must(err)
		ctx, cancel := context.WithCancel(w.ctx)
		n.mu.Lock()
		n.choose = func() fate {
			n.choose = after()
			cancel()
			return late
		}
		n.mu.Unlock()
		w.is(item.Done(ctx), coord.ErrOutcomeUnknown)
		w.must(context.Cause(item.Held()))
		if again {
			w.must(item.Done(w.ctx))
			w.is(context.Cause(item.Held()), coord.ErrReleased)
			continue
		}
		n.arrive()
		w.done("the item is not held", item.Held().Done())
		err = context.Cause(item.Held())
		w.is(err, coord.ErrOutcomeUnknown)
		if errors.Is(err, coord.ErrLost) {
			t.Errorf("%v", err)
		}
		w.is(item.Done(w.ctx), coord.ErrOutcomeUnknown)
	}
}

// An item whose claim was deleted can be taken again under the same session.
func TestItemIsTakenAgainAfterItsClaimWasDeleted(t *testing.T) {
	w := begin(t)
	q := w.admin.Queue("q")
	w.must(q.Put(w.ctx, []byte("a")))
	s := w.session(w.admin)
	item, err := q.Take(w.ctx, s)
	w.must(err)
	for _, claim := range w.keys("queue/q/claims") {
		_, err := w.admin.Etcd().Delete(w.ctx, claim)
		w.must(err)
	}
	w.done("the item is not held", item.Held().Done())
	w.is(context.Cause(item.Held()), coord.ErrLost)
	item, err = q.Take(w.ctx, s)
	w.must(err)
	w.must(item.Done(w.ctx))
}

// A client that gives up waiting for a lock hears that another one has it, if so.
func TestLockGivenUpSaysWhetherItIsHeld(t *testing.T) {
	w := begin(t)
	m := w.admin.Mutex("m")
	_, err := m.Lock(w.ctx, w.session(w.admin))
	w.must(err)
	s := w.session(w.admin)
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	_, err = m.Lock(ctx, s)
	w.is(err, coord.ErrLocked, context.DeadlineExceeded)
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err = m.Lock(ended, s); errors.Is(err, coord.ErrLocked) {
		t.Errorf("%v, and nothing was read", err)
	}
}
