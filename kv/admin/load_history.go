package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// LoadHistory has the work of a data node in the last hour, for the partitions that it led. The
// node keeps the history in memory, so that it begins again when the node's server starts.
type LoadHistory struct {
	Node uint64
	// Points are for the whole node, in the order of their beginnings. Slots are for partitions. The
	// last point and the last slot are not complete: a later request returns more for them.
	Points []LoadPoint
	Slots  []LoadSlot
	// Err says why the node did not answer, or did not answer completely. It is nil if the node did.
	Err error
}

// LoadPoint has the work of a node in a span of about 10 seconds.
type LoadPoint struct {
	// Begin is a time of the node's clock. Measured is the measured duration, by which the numbers
	// must be divided.
	Begin    time.Time
	Measured time.Duration
	// Reads and Writes are numbers of requests. ReadBytes are the bytes that reads returned.
	// WrittenBytes are the bytes written to the log.
	Reads, Writes, ReadBytes, WrittenBytes uint64
	// ReadTimes, WriteTimes and TransactionTimes are histograms of the durations of requests. One
	// request in 64 is timed. Place i counts durations up to TimeBound(i). The last place also counts
	// longer ones.
	ReadTimes, WriteTimes, TransactionTimes []uint32
}

// TimeBound returns the longest duration that is counted at a place of the histograms of a
// LoadPoint.
func TimeBound(place int) time.Duration { return 50 * time.Microsecond << min(max(place, 0), 40) }

// LoadSlot has the work of partitions in a span of about 30 seconds. The lists have an element for
// each partition that did any work. The caller may keep and change them.
type LoadSlot struct {
	Begin      time.Time
	Measured   time.Duration
	Partitions []uint64
	// Reads and Writes are numbers of requests. Bytes are the bytes read and written.
	Reads, Writes, Bytes []uint64
	// LeftOut is the number of partitions that are left out because they have done the least work.
	LeftOut int
}

// LoadHistorySince selects a part of a history.
type LoadHistorySince struct {
	// Points selects the points that begin at this time or later, by the clock of the node. Zero
	// selects all.
	Points time.Time
	// Slots selects the slots that begin at this time or later. Without Partitions, no slots are
	// returned.
	Slots      time.Time
	Partitions bool
}

// LoadHistory asks a node for its load history. since is the end of the history that the caller has
// already: usually the Begin of its last point and of its last slot. The error is in the result.
func (c *Client) LoadHistory(ctx context.Context, node NodeInfo,
	since LoadHistorySince) LoadHistory {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	history := LoadHistory{Node: node.ID}
	q := &clusterpb.LoadHistoryRequest{SinceUnixMs: unixMillis(since.Points),
		Partitions: since.Partitions, SlotsSinceUnixMs: unixMillis(since.Slots)}
	for first := true; ; first = false {
		var r *clusterpb.LoadHistoryResponse
		err := c.conn.Sender.AdminAt(ctx, node.Address, func(ctx context.Context,
			cluster clusterpb.ClusterClient) (err error) {
			r, err = cluster.LoadHistory(ctx, q)
			return err
		})
		if err != nil {
			history.Err = c.conn.Wrap("load history", "", err)
			return history
		}
		if r.Node != node.ID {
			return history // another node uses its address now
		}
		if first {
			history.addPoints(r.Points)
		}
		history.addSlots(r.Slots)
		if !r.More || len(r.Slots) == 0 {
			return history
		}
		q.SlotsSinceUnixMs, q.SinceUnixMs = r.Slots[len(r.Slots)-1].UnixMs+1, 1<<62
	}
}

// LoadHistories asks several nodes concurrently. since is called for each node before the node is
// asked. The answers are in the order of the nodes.
func (c *Client) LoadHistories(ctx context.Context, nodes []NodeInfo,
	since func(node uint64) LoadHistorySince) []LoadHistory {
	all := make([]LoadHistory, len(nodes))
	_ = conn.InParallel(ctx, len(nodes), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		all[i] = c.LoadHistory(ctx, nodes[i], since(nodes[i].ID))
		return nil // the answers of the other nodes are still useful
	})
	return all
}

func (h *LoadHistory) addPoints(points []*clusterpb.LoadPoint) {
	for _, p := range points {
		point := LoadPoint{Begin: time.UnixMilli(int64(p.UnixMs)),
			Measured: time.Duration(p.Millis) * time.Millisecond, Reads: p.Reads, Writes: p.Writes,
			ReadBytes: p.ReadBytes, WrittenBytes: p.WrittenBytes}
		for _, t := range p.Took {
			switch t.Kind {
			case 0:
				point.ReadTimes = t.Counts
			case 1:
				point.WriteTimes = t.Counts
			case 2:
				point.TransactionTimes = t.Counts
			}
		}
		h.Points = append(h.Points, point)
	}
}

func (h *LoadHistory) addSlots(slots []*clusterpb.LoadSlot) {
	for _, s := range slots {
		n := min(len(s.Partitions), len(s.Reads), len(s.Writes), len(s.Bytes))
		h.Slots = append(h.Slots, LoadSlot{Begin: time.UnixMilli(int64(s.UnixMs)),
			Measured:   time.Duration(s.Millis) * time.Millisecond,
			Partitions: s.Partitions[:n], Reads: s.Reads[:n], Writes: s.Writes[:n],
			Bytes: s.Bytes[:n], LeftOut: int(s.LeftOut)})
	}
}

// unixMillis converts a time for a request. 0 stands for the zero time.
func unixMillis(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(t.UnixMilli(), 0))
}
