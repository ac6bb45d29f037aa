package nodes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

func refusal(after time.Duration) *kvpb.Response {
	return &kvpb.Response{Error: &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED,
		RetryAfterMicros: uint64(after.Microseconds())}}
}

// sent sends requests, each with another random number, and returns how many were held back.
func (p *pace) sent(t *testing.T, n int) (held int) {
	for i := range n {
		switch d := p.delay(time.Now(), (float64(i)+0.5)/float64(n)); {
		case d > 0 && (d < 50*time.Millisecond || d > 150*time.Millisecond):
			t.Errorf("held back for %s", d)
		case d > 0:
			held++
		}
		p.sending(time.Now())
	}
	return held
}

// TestPace: nothing is held back of a node that takes what it is sent; as much as the node does not
// take, within a factor of two, if it refuses requests; and nothing again a while later.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		if held := p.sent(t, 1000); held > 0 {
			t.Errorf("%d held back at first", held)
		}
		p.answered(&kvpb.Response{}, true)
		p.answered(&kvpb.Response{Error: &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED}}, true)
		if p.active.Load() {
			t.Error("a refusal that does not say how long to wait sets the pace")
		}
		quota := refusal(100 * time.Millisecond)
		quota.Error.Cause = kvpb.ErrorCause_CAUSE_QUOTA
		p.answered(quota, true)
		if p.active.Load() {
			t.Error("the quota of a keyspace sets the pace of all requests to the node")
		}
		// The node takes a fifth.
		for range 200 {
			p.answered(refusal(100*time.Millisecond), true)
			p.sent(t, 5)
			p.answered(&kvpb.Response{}, true)
		}
		if held := p.sent(t, 100); held < 45 || held > 70 {
			t.Errorf("%d of 100 held back when the node takes a fifth", held)
		}
		// It takes all of it again.
		for range 400 {
			time.Sleep(50 * time.Millisecond)
			p.delay(time.Now(), 0.999)
			p.sending(time.Now())
			p.answered(&kvpb.Response{}, true)
		}
		if held := p.sent(t, 100); held > 0 {
			t.Errorf("%d held back 20 s after the last refusal", held)
		}
		p.answered(refusal(100*time.Millisecond), true)
		time.Sleep(time.Minute)
		if d := p.delay(time.Now(), 0); d > 0 || p.active.Load() {
			t.Errorf("a request is held back for %s a minute after the last refusal", d)
		}
	})
}

// TestPaceCountsWhatWaits: the answers to requests that never wait at the node, such as the ends of
// the transactions whose prepares it has taken, do not hide that it refuses most of what it is sent.
func TestPaceCountsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		for range 200 {
			for range 10 {
				p.sending(time.Now())
			}
			for range 7 {
				p.answered(refusal(100*time.Millisecond), true)
			}
			for range 3 {
				p.answered(&kvpb.Response{}, true)
				p.answered(&kvpb.Response{}, false) // the end
				p.answered(&kvpb.Response{}, false) // the resolution
			}
		}
		if held := p.sent(t, 100); held < 20 {
			t.Errorf("%d of 100 held back when the node takes three tenths", held)
		}
	})
}

// TestPingIsNotHeldBack: of a node that takes nothing, requests are held back, but for those of a
// high priority, for the pings of the watchdog, which would take the node for dead, for the ends of
// transactions, and for searches for a leader.
func TestPingIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Lane{Node: &Node{of: &shared{config: Config{Life: lifetime.New(),
			Random: func() uint64 { return 0 }, Held: metric.NewCounter("held", "", nil)}}}}
		for range 100 {
			l.Node.pace.answered(refusal(100*time.Millisecond), true)
			l.Node.pace.sent(t, 1)
		}
		get := &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{}}}
		now := &kvpb.Request{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
		end := &kvpb.Request{Command: &kvpb.Request_EndTransaction{
			EndTransaction: &kvpb.EndTransactionRequest{}}}
		put := &kvpb.Request{Term: 1, Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{}}}
		search := &kvpb.Request{Command: put.Command}
		high := WithPriority(t.Context(), kvpb.Priority_PRIORITY_HIGH)
		for _, c := range []struct {
			ctx  context.Context
			r    *kvpb.Request
			held bool
		}{{t.Context(), get, true}, {high, get, false}, {t.Context(), now, false},
			{t.Context(), end, false}, {t.Context(), put, true}, {t.Context(), search, false}} {
			began := time.Now()
			c.r.TimeoutMicros = 1e6
			if err := l.hold(c.ctx, c.r); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			if held := took > 0; held != c.held {
				t.Errorf("%s: held back: %t", c.r.CommandName(), held)
			}
			// The node gives up no later than the caller.
			if left := 1e6 - uint64(took.Microseconds()); c.r.TimeoutMicros != left {
				t.Errorf("%s was held back for %s, and has %d µs left, want %d", c.r.CommandName(), took,
					c.r.TimeoutMicros, left)
			}
		}
	})
}

func TestRetryAfterIsBounded(t *testing.T) {
	if d := RetryAfter(refusal(time.Hour).Error); d != mostRetryAfter {
		t.Error(d)
	}
	if d := RetryAfter(nil); d != 0 {
		t.Error(d)
	}
}
