package committer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestOneRequestThatWaited: that one request of a large transaction had to wait, be it the first,
// does not make the others be sent in haste.
func TestOneRequestThatWaited(t *testing.T) {
	const requests, each = 2000, 3 * time.Millisecond
	for _, which := range []int{0, 1, 50} {
		for _, wait := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond,
			2 * time.Second} {
			t.Run(fmt.Sprintf("request %d waits %s", which, wait), func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, _ *fake) {
					ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
					defer cancel()
					p := newPacing(begin(t, ctx, c))
					deadline, _ := ctx.Deadline()
					p.reserve = time.Until(deadline) / 2
					chunks := make([]*chunk, requests)
					for i := range chunks {
						chunks[i] = &chunk{bytes: fewBytes}
					}
					p.begin(requests)
					hasty := 0
					for sent := 0; sent < requests; {
						count, abreast := p.next(ctx, chunks[sent:])
						if abreast > 1 {
							hasty += count
						}
						for end := sent + count; sent < end; {
							time.Sleep(each)
							if sent <= which && which < sent+abreast {
								time.Sleep(wait)
							}
							for range min(abreast, end-sent) {
								sent++
								p.answered(ctx, &kvpb.PrepareResponse{Busy: true})
							}
						}
					}
					if hasty > 0 {
						t.Errorf("%d requests of %d were sent in haste", hasty, requests)
					}
				})
			})
		}
	}
}

// TestNotLowPriorityIfWanted: a large transaction for whose locks others wait does not send its
// requests with low priority.
func TestNotLowPriorityIfWanted(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		s.wanted = true
		seen := &wantedRequests{fake: s, of: begin(t, ctx, c)}
		c.sender = seen
		var writes []Write
		for i := range manyLocks + manyLocks/5 {
			writes = append(writes, put(k1(fmt.Sprintf("a%05d", i)), "v"))
		}
		if _, err := seen.of.Commit(ctx, writes, Reads{}, false); err != nil {
			t.Fatal(err)
		}
		if seen.wrong > 0 || seen.right == 0 {
			t.Errorf("%d requests had low priority though the transaction was known to be wanted, %d "+
				"were not", seen.wrong, seen.right)
		}
	})
}

// wantedRequests looks at the requests of a transaction that is wanted.
type wantedRequests struct {
	*fake
	of           *Transaction
	right, wrong int
}

func (s *wantedRequests) SendAll(ctx context.Context, limit int, all []*Request,
	landed func(int, *kvpb.Response, error) error) error {
	for _, q := range all {
		switch p := q.Command.GetPrepare(); {
		case p == nil || !s.of.isWanted():
		case p.LowPriority:
			s.wrong++
		default:
			s.right++
		}
	}
	return s.fake.SendAll(ctx, limit, all, landed)
}
