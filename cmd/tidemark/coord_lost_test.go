package main

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// A write that was never proposed has not "perhaps taken effect"; of one that etcd's client makes
// again by itself, that is not known of the attempts before the last.
func TestLostWrites(t *testing.T) {
	for err, want := range map[error]bool{
		rpctypes.ErrNoLeader: false, rpctypes.ErrLeaderChanged: false, coordpb.ErrNotSent: false,
		rpctypes.ErrTimeout: true, context.DeadlineExceeded: true, rpctypes.ErrNoSpace: false,
	} {
		if got := isLost(err); got != want {
			t.Errorf("%v: lost %v", err, got)
		}
	}
	code := func(err error) int {
		var coded *exit.Error
		if !errors.As(coordFailed(err), &coded) {
			t.Fatalf("%v has no exit code", err)
		}
		return coded.Code
	}
	if got := code(rpctypes.ErrNoLeader); got != exit.Unavailable {
		t.Errorf("without a leader: exit code %d", got)
	}
	if got := code(madeAgain(rpctypes.ErrNoLeader)); got != exit.Unknown {
		t.Errorf("a grant without a leader at the last attempt: exit code %d", got)
	}
}
