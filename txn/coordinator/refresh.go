package coordinator

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/planted"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Refresh makes sure that what was read is the same at `to`, and stays so. ErrConflict says that it is not. id and begun are those of the
// transaction that has read; both unset for a snapshot.
func (c *Coordinator) Refresh(ctx context.Context, id []byte, begun hlc.Timestamp, reads Reads, to hlc.Timestamp) error {
	err := c.refresh(ctx, id, begun, reads, to)
	outcome := "unchanged"
	switch {
	case errors.Is(err, ErrConflict):
		outcome = "changed"
	case err != nil:
		outcome = "failed"
	}
	c.metrics.refreshes.WithLabelValues(outcome).Inc()
	return err
}

func (c *Coordinator) refresh(ctx context.Context, id []byte, begun hlc.Timestamp, reads Reads, to hlc.Timestamp) error {
	rest := reads
	if planted.Active == planted.RefreshSkipped {
		return nil
	}
	for !rest.empty() {
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
			r.set.At = rpc.ToTimestamp(reads.At)
			requests[i] = &Request{
				Place: r.place, Key: r.key(), Fits: r.fits, Slack: lockSlack,
				Command: &kvpb.Request{Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{
					Transaction: id, Begun: rpc.ToTimestamp(begun), Reads: &r.set, To: rpc.ToTimestamp(to),
				}}},
			}
		}
		err = c.sender.SendAll(ctx, maxParallel, requests, func(i int, _ *kvpb.Response, err error) error {
			if errors.Is(err, ErrMoved) && chunks[i].set.Leadership != nil {
				return errLost()
			}
			if errors.Is(err, ErrMoved) {
				again := chunks[i].reads()
				rest.Keys, rest.Spans = append(rest.Keys, again.Keys...), append(rest.Spans, again.Spans...)
				return nil
			}
			return classify(chunks[i].place.Keyspace, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
