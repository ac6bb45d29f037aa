package txn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSender keeps calls until they are answered, or their context ends.
type fakeSender struct {
	calls  chan *fakeCall
	opened int
	closed int
	table  error
	// holder, if set, is the partition that a call goes to.
	holder func(*route.Call) *route.Partition
}

// stale is the answer of a node that refuses a call because of its epoch: it is sent again.
var stale = &kvpb.Response{Error: &kvpb.Error{Code: kvpb.ErrorCode_STALE_EPOCH}}

type fakeCall struct {
	*route.Call
	deadline time.Duration
	answer   chan *kvpb.Response
}

func newFakeSender() *fakeSender { return &fakeSender{calls: make(chan *fakeCall, 100)} }

func (f *fakeSender) open() (Sender, error) {
	f.opened++
	return f, nil
}

func (f *fakeSender) Subscribe(*route.Keyspace) {}

func (f *fakeSender) AwaitTable(context.Context) (*route.Table, error) {
	return &route.Table{}, f.table
}

func (f *fakeSender) Do(ctx context.Context, call *route.Call) (route.Answer, error) {
	c := &fakeCall{Call: call, answer: make(chan *kvpb.Response, 1)}
	if deadline, ok := ctx.Deadline(); ok {
		c.deadline = time.Until(deadline)
	}
	if f.holder != nil {
		if err := call.Prepare.Prepare(f.holder(call), route.Leader{}); err != nil {
			return route.Answer{}, &route.Error{Cause: err}
		}
	}
	f.calls <- c
	select {
	case r := <-c.answer:
		if r == stale {
			return f.Do(ctx, call)
		}
		if r == nil {
			return route.Answer{}, &route.Error{Code: kvpb.ErrorCode_TRANSACTION_TOO_OLD,
				Message: "too old"}
		}
		return route.Answer{Response: r}, nil
	case <-ctx.Done():
		return route.Answer{}, &route.Error{Cause: ctx.Err()}
	}
}

func (f *fakeSender) Close() { f.closed++ }

// outcomes are what callers were told.
type outcomes struct {
	mu       sync.Mutex // the fields are read when nothing moves
	statuses []*kvpb.TransactionStatus
	errs     []error
}

func (o *outcomes) done(s *kvpb.TransactionStatus, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses = append(o.statuses, s)
	o.errs = append(o.errs, err)
}

func committed() *kvpb.Response {
	return &kvpb.Response{
		Result: &kvpb.Response_Push{Push: &kvpb.PushResponse{Status: &kvpb.TransactionStatus{
			State: kvpb.TransactionState_COMMITTED, Timestamp: &kvpb.Timestamp{Wall: 9}}}}}
}

func samplePush(n byte, seen uint64) *kvpb.PushRequest {
	i := sampleInfo()
	i.ID = testID(n)
	return &kvpb.PushRequest{Pushee: i.Proto(), Seen: &kvpb.Timestamp{Wall: seen}}
}

// bubble runs a test of a PushSender in virtual time.
func bubble(t *testing.T, c PushSenderConfig, test func(*testing.T, *PushSender, *fakeSender)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSender()
		if c.Open == nil {
			c.Open = f.open
		}
		s := NewPushSender(c)
		defer s.Close()
		test(t, s, f)
	})
}

func TestPushIsRoutedToItsAnchor(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		if f.opened != 0 {
			t.Fatal("opened before the first push")
		}
		var o outcomes
		q := samplePush(1, 5)
		s.Push(q, o.done)
		call := <-f.calls
		if call.Keyspace != 7 || string(call.Key) != "an\x00chor" || call.By != route.ByKey ||
			!call.Write || call.Request.GetPush() != q || call.deadline != 2*time.Second {
			t.Errorf("%+v", call)
		}
		call.answer <- committed()
		synctest.Wait()
		if len(o.errs) != 1 || o.errs[0] != nil ||
			o.statuses[0].State != kvpb.TransactionState_COMMITTED {
			t.Errorf("%v, %v", o.statuses, o.errs)
		}

		// What the coordinator says comes back as it said it.
		s.Push(q, o.done)
		(<-f.calls).answer <- nil
		synctest.Wait()
		var refused *route.Error
		if len(o.errs) != 2 || !errors.As(o.errs[1], &refused) ||
			refused.Code != kvpb.ErrorCode_TRANSACTION_TOO_OLD {
			t.Errorf("%v, %v", o.statuses, o.errs)
		}
		s.Push(q, o.done)
		(<-f.calls).answer <- &kvpb.Response{}
		synctest.Wait()
		if len(o.errs) != 3 || o.errs[2] == nil ||
			!strings.Contains(o.errs[2].Error(), "without a status") {
			t.Errorf("%v, %v", o.statuses, o.errs)
		}
		if f.opened != 1 {
			t.Errorf("opened %d times", f.opened)
		}
		s.Close()
		if f.closed != 1 {
			t.Errorf("closed %d times", f.closed)
		}
	})
}

// An answer must be of a moment after its push: one that waits for an answer already may be told
// what was true before.
func TestPushesShareNothing(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		var first, second outcomes
		s.Push(samplePush(1, 5), first.done)
		early := <-f.calls
		s.Push(samplePush(1, 5), second.done)
		late := <-f.calls
		early.answer <- &kvpb.Response{
			Result: &kvpb.Response_Push{Push: &kvpb.PushResponse{Status: &kvpb.TransactionStatus{}}}}
		synctest.Wait()
		if len(first.errs) != 1 || len(second.errs) != 0 {
			t.Fatalf("told: %v, %v", first.statuses, second.statuses)
		}
		late.answer <- committed()
		synctest.Wait()
		if len(second.errs) != 1 || second.statuses[0].State != kvpb.TransactionState_COMMITTED {
			t.Fatalf("told: %v", second.statuses)
		}
	})
}

func TestPushesAreBounded(t *testing.T) {
	bubble(t, PushSenderConfig{InFlight: 2, Timeout: time.Second},
		func(t *testing.T, s *PushSender, f *fakeSender) {
			var o outcomes
			busy := func(want int) {
				t.Helper()
				n := 0
				o.mu.Lock() // those that are under way end later
				defer o.mu.Unlock()
				for _, err := range o.errs {
					if errors.Is(err, ErrPushersBusy) {
						n++
					}
				}
				if n != want {
					t.Fatalf("%d were refused, want %d: %v", n, want, o.errs)
				}
			}
			s.Push(samplePush(1, 5), o.done)
			s.Push(samplePush(2, 5), o.done)
			s.Push(samplePush(3, 5), o.done)
			busy(1)
			s.Push(samplePush(1, 5), o.done)
			busy(2)
			// All of it is given back.
			time.Sleep(time.Second)
			synctest.Wait()
			if len(o.errs) != 4 {
				t.Fatalf("%d of 4 were told", len(o.errs))
			}
			for _, err := range o.errs[2:] {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want that its time is up", err)
				}
			}
			s.Push(samplePush(1, 5), o.done)
			s.Push(samplePush(2, 5), o.done)
			busy(2)
			s.Push(samplePush(2, 5), o.done)
			busy(3)
		})
}

func TestClosingEndsPushes(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		var o outcomes
		s.Push(samplePush(1, 5), o.done)
		s.Push(samplePush(2, 5), o.done)
		s.Close()
		s.Push(samplePush(1, 5), o.done)
		if len(o.errs) != 3 || slices.ContainsFunc(o.errs, func(err error) bool {
			return !errors.Is(err, ErrPusherClosed)
		}) {
			t.Fatalf("%v", o.errs)
		}
		if f.closed != 1 {
			t.Fatalf("closed %d times", f.closed)
		}
	})
	// One that has sent nothing has nothing to close.
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		s.Close()
		if f.opened != 0 || f.closed != 0 {
			t.Fatalf("opened %d times, closed %d times", f.opened, f.closed)
		}
	})
}

func TestPushesThatCannotBeSent(t *testing.T) {
	f := newFakeSender()
	opening := errors.New("no endpoints")
	bubble(t, PushSenderConfig{Open: func() (Sender, error) {
		if opening != nil {
			return nil, opening
		}
		return f.open()
	}}, func(t *testing.T, s *PushSender, _ *fakeSender) {
		var o outcomes
		s.Push(samplePush(1, 5), o.done)
		if len(o.errs) != 1 || !errors.Is(o.errs[0], opening) {
			t.Fatalf("%v", o.errs)
		}
		opening, f.table = nil, errors.New("no server can be reached")
		s.Push(samplePush(1, 5), o.done)
		synctest.Wait()
		if len(o.errs) != 2 || !errors.Is(o.errs[1], f.table) {
			t.Fatalf("%v", o.errs)
		}
		for i, change := range []func(*kvpb.PushRequest){
			func(q *kvpb.PushRequest) { q.Pushee = nil },
			func(q *kvpb.PushRequest) { q.Pushee.Anchor = nil },
		} {
			q := samplePush(1, 5)
			change(q)
			if s.Push(q, o.done); len(o.errs) != 3+i || o.errs[2+i] == nil {
				t.Fatalf("%v: %v", q, o.errs)
			}
		}
	})
	if f.opened != 1 || f.closed != 1 {
		t.Fatalf("opened %d times, closed %d times", f.opened, f.closed)
	}
}
