package committer

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// A refresh whose timestamp is too far ahead of a server's clock is repeated after earlyPause,
	// which doubles each time up to maxEarlyPause.
	earlyPause    = time.Millisecond
	maxEarlyPause = 50 * time.Millisecond
)

// Refresh ensures that the reads have the same results at `to`, and that no later write changes
// this. ErrConflict reports that the results differ. id and begun identify the reading transaction;
// both are unset for a snapshot. A server whose clock is too far behind `to` is asked again until
// ctx ends.
func (c *Committer) Refresh(ctx context.Context, id []byte, begun hlc.Timestamp, reads Reads,
	to hlc.Timestamp) error {
	return c.refreshLike(ctx,
		&kvpb.RefreshRequest{Transaction: id, Begun: wire.ToTimestamp(begun)}, reads, to)
}

// refreshLike is Refresh with requests that are copies of like.
func (c *Committer) refreshLike(ctx context.Context, like *kvpb.RefreshRequest, reads Reads,
	to hlc.Timestamp) error {
	err := c.refresh(ctx, like, reads, to)
	outcome := "unchanged"
	switch {
	case errors.Is(err, ErrConflict):
		outcome = "changed"
	case err != nil:
		outcome = "failed"
	}
	c.metrics.refreshes.With(outcome).Inc()
	return err
}

func (c *Committer) refresh(ctx context.Context, like *kvpb.RefreshRequest, reads Reads,
	to hlc.Timestamp) error {
	rest := reads
	for pause := earlyPause; !rest.empty(); {
		chunks, err := c.readChunks(ctx, rest.Keys, rest.Spans)
		if err == nil {
			err = rest.under(chunks)
		}
		if err != nil {
			return err
		}
		rest = Reads{}
		requests := make([]*Request, len(chunks))
		for i, r := range chunks {
			r.set.At = wire.ToTimestamp(reads.At)
			requests[i] = &Request{
				Place: r.place, Key: r.key(), Fits: r.fits, Slack: lockSlack,
				Command: &kvpb.Request{Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{
					Transaction: like.Transaction, Begun: like.Begun, Yield: like.Yield,
					Reads: &r.set, To: wire.ToTimestamp(to),
				}}},
			}
		}
		var early *route.Error
		err = c.sender.SendAll(ctx, maxParallel, requests,
			func(i int, _ *kvpb.Response, err error) error {
				if r, answered := codeOf(err); answered && r.Code == kvpb.ErrorCode_TIMESTAMP_IN_FUTURE {
					early = r
					rest.add(chunks[i])
					return nil
				}
				if errors.Is(err, ErrMoved) && chunks[i].set.Leadership != nil {
					return errLost()
				}
				if errors.Is(err, ErrMoved) {
					rest.add(chunks[i])
					return nil
				}
				return classify(chunks[i].place.Keyspace, err)
			})
		if err == nil && early != nil {
			if err = c.pause(ctx, pause); err != nil {
				ended := *early
				ended.Cause = err
				err = &ended
			}
			pause = min(2*pause, maxEarlyPause)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
