package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
)

// timePatience is the time that a node has to return its time before another node is asked.
const timePatience = 2 * time.Second

// Moment implements job.Cluster. It fixes the coordination store's state first. If something in
// that state depends on a write to a keyspace, the write was acknowledged before. The timestamp of
// an acknowledged write is at most twice MaxAhead above the clock of any data node. (The first
// writes under a new leader are that far ahead: see the invariants of package hlc.) So one node is
// then asked for its time. The clock of this member is not suitable, because the clock of a server
// without a data node is not compared with other clocks.
//
// Replicas refuse reads at a moment that their clocks have not reached. So Moment waits until all
// clocks have reached it.
func (c *cluster) Moment(ctx context.Context) (hlc.Timestamp, job.Coordination, error) {
	return c.moment(ctx, c.timeOfNode)
}

// moment does the work of Moment. now returns the time in nanoseconds since 1970.
func (c *cluster) moment(ctx context.Context, now func(context.Context) (int64, error)) (
	hlc.Timestamp, job.Coordination, error) {
	state, err := c.config.Coordination(ctx)
	if err != nil {
		return hlc.Timestamp{}, nil, fmt.Errorf("the coordination store: %w", err)
	}
	ahead := 2 * c.config.Clock.MaxAhead()
	wall, err := now(ctx)
	if err == nil {
		err = backoff.Sleep(ctx, ahead+c.config.Clock.MaxOffset()+time.Millisecond)
	}
	if err != nil {
		if state != nil {
			state.Close()
		}
		return hlc.Timestamp{}, nil, err
	}
	return hlc.Timestamp{Wall: wall + int64(ahead)}, state, nil
}

// errNoTime: no data node has returned its time.
var errNoTime = errors.New("no data node tells the time")

// timeOfNode returns the clock of a data node that trusts its clock.
func (c *cluster) timeOfNode(ctx context.Context) (int64, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return 0, err
	}
	err = errNoTime
	first := c.config.Random()
	for i := range nodes {
		node := nodes[(first+uint64(i))%uint64(len(nodes))]
		worker, dialled := c.worker(node)
		if dialled != nil {
			err = dialled
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, timePatience)
		answer, asked := worker.Time(attempt, &backuppb.TimeRequest{Cluster: c.config.Cluster(),
			Node: uint64(node)})
		cancel()
		if asked == nil {
			return answer.GetUnixNanos(), nil
		}
		err = fmt.Errorf("%w: node %d: %s", errNoTime, node, status.Convert(asked).Message())
	}
	return 0, err
}

// Time implements backuppb.WorkerServer.
func (w *Worker) Time(_ context.Context, r *backuppb.TimeRequest) (*backuppb.TimeResponse, error) {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return nil, err
	}
	wall := w.config.Wall()
	if wall == 0 {
		return nil, status.Error(codes.Unavailable, "this server does not trust its clock at present")
	}
	return &backuppb.TimeResponse{UnixNanos: int64(wall)}, nil
}
