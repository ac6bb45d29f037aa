package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

func TestMessagesAreReadAloud(t *testing.T) {
	for text, want := range map[string]string{
		`tidemark: get "a" in keyspace "f": the key has no value`:         `get "a" in keyspace "f": the key has no value`,
		`load: 3 records were written: tidemark: batch: the disk is full`: `load: 3 records were written: batch: the disk is full`,
		`open: no server could be reached: 127.0.0.1:7777: connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7777: connect: connection refused"`: `open: no server could be reached: 127.0.0.1:7777: connection refused`,
		`no.such:7: connection error: desc = "transport: Error while dialing: dial tcp: lookup no.such on 10.0.0.53:53: no such host"`:                                      `no.such:7: no.such: no such host`,
		`the last error was: rpc error: code = Unavailable desc = this server is starting`:                                                                                  `the last error was: this server is starting`,
		`tidemark: commit: the transaction may be committed; ask kv.Outcome, or read what it has written, to find out`:                                                      `commit: the transaction may be committed; read what it has written to find out`,
		"joining: file 000010: checksum mismatch\n<corruption detail carrier>\nfile 000010: checksum mismatch\nclosing: busy":                                               `joining: file 000010: checksum mismatch; closing: busy`,
	} {
		if got := message(errors.New(text)); got != want {
			t.Errorf("%s\nis read\n%s\nwant\n%s", text, got, want)
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
		{t.Context(), nil, exitOK},
		{t.Context(), errors.New("anything"), exitFailed},
		{t.Context(), usagef("bad %s", "flag"), exitUsage},
		{t.Context(), fmt.Errorf("load: %w", notFoundf("nothing")), exitNotFound},
		{t.Context(), fmt.Errorf("x: %w", kv.ErrNotFound), exitNotFound},
		{t.Context(), kv.ErrKeyspaceNotFound, exitNotFound},
		{t.Context(), kv.ErrKeyspaceExists, exitUsage},
		{t.Context(), kv.ErrDiskFull, exitUnavailable},
		{t.Context(), errors.Join(context.DeadlineExceeded, kv.ErrNoQuorum), exitUnavailable},
		{t.Context(), errors.Join(kv.ErrNoQuorum, kv.ErrOutcomeUnknown), exitUnknown},
		{t.Context(), fmt.Errorf("line 3: %w", kv.ErrConflict), exitConflict},
		{t.Context(), errors.Join(context.DeadlineExceeded, kv.ErrTransactionAborted), exitConflict},
		{t.Context(), kv.ErrTimestampTooOld, exitUsage},
		{t.Context(), fmt.Errorf("commit: %w", kv.ErrTransactionTooOld), exitFailed},
		{t.Context(), fmt.Errorf("get: %w", errors.Join(kv.ErrTimestampTooOld, kv.ErrTransactionTooOld)), exitFailed},
		{t.Context(), errors.Join(kv.ErrTransactionTooOld, kv.ErrOutcomeUnknown), exitUnknown},
		{ended, errors.New("interrupted"), exitInterrupted},
	} {
		if got := exitCode(c.ctx, c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}
