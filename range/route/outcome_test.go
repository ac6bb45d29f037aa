package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// A write whose time ends while it waits to be sent did not happen, unless an attempt before it may
// have.
func TestOutcomeOfWhatWasNotSent(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	notSent := fmt.Errorf("%w: %w", client.ErrNotSent, context.Canceled)
	for _, c := range []struct {
		name           string
		err            error
		before         bool
		write, unknown bool
		attempts       int
	}{
		{"sent", context.Canceled, false, true, true, 3},
		{"not sent", notSent, false, true, false, 2},
		{"not sent, after one that was", notSent, true, true, true, 2},
		{"read", context.Canceled, false, false, false, 3},
	} {
		a := attempt{sender: new(Sender), call: &Call{Write: c.write}, maybe: c.before, sent: 3}
		_, err, again := a.unanswered(over, &Partition{ID: 7},
			&table.Hint{Node: &nodes.Node{ID: 1}, Term: 5}, c.err)
		var e *Error
		if again != nil || !errors.As(err, &e) || !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v, %v", c.name, err, again)
		}
		if e.OutcomeUnknown != c.unknown || e.Attempts != c.attempts || e.Message == "" {
			t.Errorf("%s: unknown %t after %d attempts: %v", c.name, e.OutcomeUnknown, e.Attempts, err)
		}
	}
}

// A write whose time was over before its first attempt did not happen, unless an earlier call with
// the same identity may have done what it says.
func TestOutcomeOfASecondCallWithoutTime(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s := new(Sender)
	for _, c := range []struct {
		name           string
		identity       *Identity
		write, unknown bool
	}{
		{"no identity", nil, true, false},
		{"first call", new(Identity), true, false},
		{"second call", &Identity{sequence: 3}, true, true},
		{"read", &Identity{sequence: 3}, false, false},
	} {
		_, err := s.Do(over, &Call{Write: c.write, Identity: c.identity})
		var e *Error
		if !errors.As(err, &e) || e.OutcomeUnknown != c.unknown || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want unknown: %t", c.name, err, c.unknown)
		}
	}
}

// A request that is too large for the node that says so ends. An attempt before it may have been
// executed by another node.
func TestOutcomeOfWhatIsTooLarge(t *testing.T) {
	for _, before := range []bool{false, true} {
		a := attempt{sender: new(Sender), call: &Call{Write: true}, maybe: before}
		_, err, again := a.refused(&Partition{ID: 7},
			&table.Hint{Node: &nodes.Node{ID: 1}, Term: 5}, false,
			&kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Cause: kvpb.ErrorCause_CAUSE_TOO_LARGE,
				Message: "too large"})
		var e *Error
		if again != nil || !errors.As(err, &e) || e.OutcomeUnknown != before ||
			e.Message != "too large" {
			t.Errorf("with an attempt before: %t: %v, %v", before, err, again)
		}
	}
}

// The nodes that cannot be reached stand in an error as far as they may be its reason: not beside
// what the leader that serves the partition has said.
func TestUnreachableNodesAreNamedWhereTheyMatter(t *testing.T) {
	for code, named := range map[kvpb.ErrorCode]bool{
		kvpb.ErrorCode_UNKNOWN_ERROR: true, kvpb.ErrorCode_NOT_LEADER: true,
		kvpb.ErrorCode_DISK_FULL: true,
		kvpb.ErrorCode_LOCKED:    false, kvpb.ErrorCode_OVERLOADED: false,
		kvpb.ErrorCode_TRANSACTION_CONFLICT: false,
	} {
		p := &Partition{ID: 7, Voters: someNodes(t, 3)}
		suspect(p.Voters[2])
		a := attempt{sender: new(Sender), call: &Call{}, at: p}
		a.note(code, "the reason", p.ID, 1)
		e := a.ended(context.DeadlineExceeded)
		if strings.Contains(e.Message, "cannot reach node n3 (10.0.0.3:7400)") != named {
			t.Errorf("%s: %s", code, e.Message)
		}
	}
}

// A call whose time is over while its request is held back has failed because of overload.
func TestOutcomeOfWhatWasHeldBack(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	held := fmt.Errorf("%w: %w: %w", client.ErrNotSent, nodes.ErrHeld, context.Canceled)
	a := attempt{sender: bareSender(), call: &Call{Request: &kvpb.Request{}, Write: true}, sent: 1}
	_, err, _ := a.unanswered(over, &Partition{ID: 7}, &table.Hint{Node: &nodes.Node{ID: 1}, Term: 5},
		held)
	var e *Error
	if !errors.As(err, &e) || e.Code != kvpb.ErrorCode_OVERLOADED || e.OutcomeUnknown {
		t.Errorf("%v", err)
	}
}

// A request that is refused for a quota is sent again after the time that the node says, each time.
// At the quota of bytes it is not sent again, and its outcome is known unless an attempt before it may
// have been executed.
func TestOutcomeAtQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bareSender()
		s.cfg.Random = func() uint64 { return 1 << 62 }
		s.metrics = &metrics{retries: map[string]*metric.Counter{
			overloadedBackoff.Name: metric.NewCounter("retries", "", nil)}}
		a := attempt{sender: s, call: &Call{Request: &kvpb.Request{}}}
		for range 5 {
			_, err, again := a.refused(&Partition{ID: 7}, &table.Hint{Node: &nodes.Node{ID: 1}, Term: 5},
				false, &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: "quota",
					Cause: kvpb.ErrorCause_CAUSE_QUOTA, RetryAfterMicros: 70_000})
			if err != nil || again == nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := a.wait(t.Context(), *again); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != 70*time.Millisecond {
				t.Errorf("waited %s", waited)
			}
		}
	})
	for _, before := range []bool{false, true} {
		for _, proved := range []bool{false, true} {
			a := attempt{sender: new(Sender), call: &Call{Write: true}, maybe: before}
			_, err, again := a.refused(&Partition{ID: 7}, &table.Hint{Node: &nodes.Node{ID: 1}, Term: 5},
				false, &kvpb.Error{Code: kvpb.ErrorCode_QUOTA_EXCEEDED, NotExecuted: proved})
			var e *Error
			if again != nil || !errors.As(err, &e) || e.OutcomeUnknown != (before && !proved) {
				t.Errorf("before %t, proved %t: %v, %v", before, proved, err, again)
			}
		}
	}
}
