package etcdapi

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// However often strangers call, and with whatever name, the log gets a bounded number of short
// lines, and what administers is not among what is left out.
func TestAuditIsBounded(t *testing.T) {
	g := serveUsers(t, nil)
	b := g.services.guard.backend
	refused := func(method, user string) {
		c := &call{method: method}
		c.note(identity{info: &storepb.AuthInfo{User: user}})
		b.audit(t.Context(), c, status.Error(codes.PermissionDenied, strings.Repeat("e", 1<<20)))
	}
	for range 1000 {
		refused("/etcdserverpb.KV/Range", strings.Repeat("\x01", 1<<20))
	}
	lines := g.log.lines(t)
	if len(lines) != limitedBurst {
		t.Fatalf("%d lines for 1000 refused calls, want %d", len(lines), limitedBurst)
	}
	for _, line := range lines {
		for key, value := range line {
			if text, is := value.(string); is && len(text) > maxAudited {
				t.Fatalf("%s has %d bytes", key, len(text))
			}
		}
	}
	refused("/etcdserverpb.Auth/UserAdd", "u")
	if n := len(g.log.lines(t)); n != 1 {
		t.Fatalf("%d lines for what administers, after a flood of what does not", n)
	}
	for range 1000 {
		refused("/etcdserverpb.Auth/UserAdd", "u")
	}
	if n := len(g.log.lines(t)); n != limitedBurst-1 {
		t.Fatalf("%d lines for refused calls that administer, want %d", n, limitedBurst-1)
	}
	// What is done has a line in any case.
	for range 2 * limitedBurst {
		b.audit(t.Context(), &call{method: "/etcdserverpb.Auth/UserAdd"}, nil)
	}
	if n := len(g.log.lines(t)); n != 2*limitedBurst {
		t.Fatalf("%d lines for what was done, want %d", n, 2*limitedBurst)
	}
	// Time brings lines back, and the first says how many were left out.
	g.clock.step(limitedEvery)
	refused("/etcdserverpb.KV/Range", "u")
	lines = g.log.lines(t)
	if len(lines) != 1 || lines[0]["others"] != float64(1000-limitedBurst) {
		t.Fatalf("after a while: %v", lines)
	}
}

func TestAuditLimit(t *testing.T) {
	var l auditLimit
	now := time.Now()
	count := func() (n int) {
		for range 3 * limitedBurst {
			if _, ok := l.take(now); ok {
				n++
			}
		}
		return n
	}
	for i, step := range []struct {
		after time.Duration
		want  int
	}{{0, limitedBurst}, {limitedEvery / 2, 0}, {limitedEvery / 2, 1}, {3 * limitedEvery, 3},
		{time.Hour, limitedBurst}, {-time.Hour, limitedBurst}, {limitedEvery, 1}} {
		now = now.Add(step.after)
		if n := count(); n != step.want {
			t.Errorf("step %d: %d lines, want %d", i, n, step.want)
		}
	}
}
