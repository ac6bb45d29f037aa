package authorize

import (
	"bytes"
	"encoding/json"
	"log/slog"
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
	log, now := &bytes.Buffer{}, time.Now()
	b, err := New(nil, Config{Logger: slog.New(slog.NewJSONHandler(log, nil)),
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	// taken are the lines of the log, which forgets them.
	taken := func() (lines []map[string]any) {
		for line := range strings.Lines(log.String()) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["audit"] != true {
				t.Fatalf("%s: %v", line, err)
			}
			lines = append(lines, fields)
		}
		log.Reset()
		return lines
	}
	refused := func(method, user string) {
		c := &Call{Method: method}
		c.note(identity{info: &storepb.AuthInfo{User: user}})
		b.Audit(t.Context(), c, status.Error(codes.PermissionDenied, strings.Repeat("e", 1<<20)))
	}
	for range 1000 {
		refused("/etcdserverpb.KV/Range", strings.Repeat("\x01", 1<<20))
	}
	lines := taken()
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
	if n := len(taken()); n != 1 {
		t.Fatalf("%d lines for what administers, after a flood of what does not", n)
	}
	for range 1000 {
		refused("/etcdserverpb.Auth/UserAdd", "u")
	}
	if n := len(taken()); n != limitedBurst-1 {
		t.Fatalf("%d lines for refused calls that administer, want %d", n, limitedBurst-1)
	}
	// What is done has a line in any case.
	for range 2 * limitedBurst {
		b.Audit(t.Context(), &Call{Method: "/etcdserverpb.Auth/UserAdd"}, nil)
	}
	if n := len(taken()); n != 2*limitedBurst {
		t.Fatalf("%d lines for what was done, want %d", n, 2*limitedBurst)
	}
	// Time brings lines back, and the first says how many were left out.
	now = now.Add(limitedEvery)
	refused("/etcdserverpb.KV/Range", "u")
	lines = taken()
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
