package committer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// unresolving has a partition that answers everything but Resolves.
type unresolving struct{ *fake }

func (s unresolving) SendAll(ctx context.Context, limit int, all []*Request,
	landed func(int, *kvpb.Response, error) error) error {
	if len(all) > 0 && all[0].Command.GetResolve() != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.fake.SendAll(ctx, limit, all, landed)
}

// TestEndsDoNotWaitForOthers: a transaction that is committed, or aborted, does not keep its caller
// because a partition does not resolve the locks of many others.
func TestEndsDoNotWaitForOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		c.sender = unresolving{s}
		began := time.Now()
		for i := range maxBackground + 5 {
			x := begin(t, ctx, c)
			writes := []Write{put(k1(fmt.Sprintf("a%d", i)), "v"), put(k2(fmt.Sprintf("a%d", i)), "v")}
			if _, err := x.Commit(ctx, writes, Reads{}, false); err != nil {
				t.Fatal(err)
			}
			if i < maxBackground {
				began = time.Now()
			}
		}
		x := begin(t, ctx, c)
		if _, err := x.Lock(ctx, s.now(), false, k1("z")); err != nil {
			t.Fatal(err)
		}
		x.Abort()
		// One that ran in its caller would take all of backgroundTime.
		if took := time.Since(began); took > backgroundTime/2 {
			t.Errorf("six of them took %s", took)
		}
	})
}
