package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

func TestMessagesAreReadAloud(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`tidemark: get "a" in keyspace "f": the key has no value`,
			`get "a" in keyspace "f": the key has no value`},
		{`load: 3 records were written: tidemark: batch: the disk is full`,
			`load: 3 records were written: batch: the disk is full`},
		{`open: no server could be reached: 127.0.0.1:7777: connection error: ` +
			`desc = "transport: Error while dialing: ` +
			`dial tcp 127.0.0.1:7777: connect: connection refused"`,
			`open: no server could be reached: 127.0.0.1:7777: connection refused`},
		{`no.such:7: connection error: desc = "transport: Error while dialing: ` +
			`dial tcp: lookup no.such on 10.0.0.53:53: no such host"`,
			`no.such:7: no.such: no such host`},
		{`the last error was: rpc error: code = Unavailable desc = this server is starting`,
			`the last error was: this server is starting`},
		{`tidemark: commit: the transaction may be committed; ask kv.Outcome, ` +
			`or read what it has written, to find out`,
			`commit: the transaction may be committed; read what it has written to find out`},
		{"joining: file 000010: checksum mismatch\n<corruption detail carrier>\n" +
			"file 000010: checksum mismatch\nclosing: busy",
			`joining: file 000010: checksum mismatch; closing: busy`},
	} {
		if got := Message(errors.New(c.text)); got != c.want {
			t.Errorf("%s\nis read\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), nil, OK},
		{t.Context(), errors.New("anything"), Failed},
		{t.Context(), Usagef("bad %s", "flag"), Usage},
		{t.Context(), fmt.Errorf("load: %w", NotFoundf("nothing")), NotFound},
		{t.Context(), fmt.Errorf("x: %w", kv.ErrNotFound), NotFound},
		{t.Context(), kv.ErrKeyspaceNotFound, NotFound},
		{t.Context(), kv.ErrConsumerNotFound, NotFound},
		{t.Context(), kv.ErrKeyspaceExists, Usage},
		{t.Context(), kv.ErrDiskFull, Unavailable},
		{t.Context(), errors.Join(context.DeadlineExceeded, kv.ErrNoQuorum), Unavailable},
		{t.Context(), errors.Join(kv.ErrNoQuorum, kv.ErrOutcomeUnknown), Unknown},
		{t.Context(), fmt.Errorf("line 3: %w", kv.ErrConflict), Conflict},
		{t.Context(), errors.Join(context.DeadlineExceeded, kv.ErrTransactionAborted), Conflict},
		{t.Context(), kv.ErrTimestampTooOld, Usage},
		{t.Context(), fmt.Errorf("commit: %w", kv.ErrTransactionTooOld), Failed},
		{t.Context(), fmt.Errorf("get: %w",
			errors.Join(kv.ErrTimestampTooOld, kv.ErrTransactionTooOld)), Failed},
		{t.Context(), errors.Join(kv.ErrTransactionTooOld, kv.ErrOutcomeUnknown), Unknown},
		{ended, errors.New("interrupted"), Interrupted},
	} {
		if got := Code(c.ctx, c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// An interruption does not hide that an outcome is unknown.
func TestUnknownBeforeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	for want, err := range map[int]error{Interrupted: failed, OK: nil,
		Unknown: fmt.Errorf("line 3: %w", &Error{Code: Unknown, Err: failed})} {
		if got := Code(ctx, err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
