package kv

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
)

// A call of administration that may have been executed says so, and nothing else that would deny
// it.
func TestUnknownOutcomesOfAdministration(t *testing.T) {
	search := &route.Error{Code: kvpb.ErrorCode_NO_QUORUM, Cause: context.DeadlineExceeded,
		Message: "the core has no quorum"}
	for _, c := range []struct {
		err       error
		kinds     []ErrorKind
		not       []ErrorKind
		mentioned string
	}{
		{search, []ErrorKind{ErrNoQuorum}, []ErrorKind{ErrOutcomeUnknown}, "no quorum"},
		{outcome.Doubt(search), []ErrorKind{ErrNoQuorum, ErrOutcomeUnknown}, nil, outcome.Advice},
		{outcome.Doubt(status.Error(codes.NotFound, "there is no partition 7")),
			[]ErrorKind{ErrOutcomeUnknown}, []ErrorKind{ErrKeyspaceNotFound}, "partition 7"},
		{outcome.Unknown(codes.Unavailable, "the core: the leader changed"),
			[]ErrorKind{ErrOutcomeUnknown}, []ErrorKind{ErrUnavailable}, "the leader changed"},
		{status.Error(codes.NotFound, "there is no partition 7"), []ErrorKind{ErrKeyspaceNotFound},
			[]ErrorKind{ErrOutcomeUnknown}, "partition 7"},
	} {
		err := wrapAdmin("merge partition 7", "", c.err)
		for _, kind := range c.kinds {
			if !errors.Is(err, kind) {
				t.Errorf("%v: not %v: %v", c.err, kind, err)
			}
		}
		for _, kind := range c.not {
			if errors.Is(err, kind) {
				t.Errorf("%v: %v: %v", c.err, kind, err)
			}
		}
		if !strings.Contains(err.Error(), c.mentioned) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
