package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/reports"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// core is the consistent core as far as nodes see it.
type core struct {
	mu       sync.Mutex
	changed  chan struct{}
	down     bool
	revision uint64
	// history are the updates by revision; those up to compacted are gone.
	history   []*clusterpb.TableUpdate
	compacted uint64
	table     *table.Table
	// reports are the latest, by partition.
	reports  map[uint64]*clusterpb.PartitionReport
	reporter map[uint64]uint64
	stats    map[uint64]*clusterpb.NodeStats
	wantFull map[uint64]bool
	fulls    map[uint64]int
	beats    int
	// follow: descriptors that are reported go into the table. orders, if not nil, gives what a
	// partition's leader is to do.
	follow bool
	orders func(*clusterpb.Partition) *clusterpb.Order
}

func newCore() *core {
	return &core{
		changed: make(chan struct{}), table: table.New(),
		reports:  make(map[uint64]*clusterpb.PartitionReport),
		reporter: make(map[uint64]uint64), stats: make(map[uint64]*clusterpb.NodeStats),
		wantFull: make(map[uint64]bool), fulls: make(map[uint64]int),
	}
}

func (c *core) signalLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *core) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	c.signalLocked()
}

// update makes a change at the next revision.
func (c *core) update(u *clusterpb.TableUpdate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updateLocked(u)
}

func (c *core) updateLocked(u *clusterpb.TableUpdate) {
	c.revision++
	u.Revision, u.Cluster = c.revision, testCluster
	c.history = append(c.history, u)
	c.table = c.table.With(u)
	c.signalLocked()
}

// compact forgets the history, so that a node that is behind is sent everything anew.
func (c *core) compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compacted, c.history = c.revision, nil
}

var errDown = errors.New("the core is down")

func (c *core) Watch(ctx context.Context, after uint64,
	fn func(*clusterpb.TableUpdate) error) error {
	greeted := false
	for {
		c.mu.Lock()
		if c.down {
			c.mu.Unlock()
			return errDown
		}
		changed, revision := c.changed, c.revision
		var send []*clusterpb.TableUpdate
		if after < c.compacted || (after == 0 && !greeted) {
			u := table.Diff(table.New(), c.table)
			u.Reset_, u.Revision, u.Cluster = true, revision, testCluster
			greeted = false
			send = append(send, u)
		} else {
			for _, u := range c.history {
				if u.Revision > after {
					send = append(send, u)
				}
			}
		}
		c.mu.Unlock()
		if !greeted {
			send = append(send, &clusterpb.TableUpdate{Cluster: testCluster, Revision: revision,
				Complete: true})
			greeted = true
		}
		for _, u := range send {
			if err := fn(u); err != nil {
				return err
			}
		}
		after = revision
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *core) Heartbeat(ctx context.Context,
	r *clusterpb.HeartbeatRequest) (*clusterpb.HeartbeatResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errDown
	}
	if len(r.Reports) > reports.MaxReports {
		return nil, fmt.Errorf("%d reports in one heartbeat", len(r.Reports))
	}
	c.beats++
	c.stats[r.Node] = r.Stats
	if r.Full {
		c.fulls[r.Node]++
		for id, node := range c.reporter {
			if node == r.Node {
				delete(c.reporter, id)
				delete(c.reports, id)
			}
		}
	}
	for _, p := range r.Reports {
		switch {
		case p.Lost && c.reporter[p.Partition] == r.Node:
			delete(c.reporter, p.Partition)
			delete(c.reports, p.Partition)
		case !p.Lost && p.Term >= c.reports[p.Partition].GetTerm():
			c.reports[p.Partition], c.reporter[p.Partition] = p, r.Node
		}
	}
	want := c.wantFull[r.Node]
	c.wantFull[r.Node] = false
	response := &clusterpb.HeartbeatResponse{LeaseMillis: 9000, WantFull: want}
	for _, p := range r.Reports {
		d := p.Described
		if !c.follow || d == nil {
			continue
		}
		// What has split off comes with its parent, and not before. It may be left over from before
		// another partition consumed it.
		known := c.table.Partition(keys.PartitionID(d.Id))
		if known != nil && keys.CompareEpochs(known, d) < 0 {
			u := &clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{d}}
			for _, piece := range p.SplitOff {
				if !c.consumedLocked(piece) {
					u.Partitions = append(u.Partitions, piece)
				}
			}
			for _, other := range c.table.Partitions() {
				for _, by := range u.Partitions {
					if keys.Subsumes(by, other) && other.Keyspace == by.Keyspace {
						u.RemovedPartitions = append(u.RemovedPartitions, other.Id)
						break
					}
				}
			}
			c.updateLocked(u)
		}
	}
	if c.orders != nil {
		for id, node := range c.reporter {
			if o := c.orders(c.table.Partition(keys.PartitionID(id))); o != nil && node == r.Node {
				response.Orders = append(response.Orders, o)
			}
		}
	}
	return response, nil
}

// consumedLocked says whether the table shows that a partition was consumed.
func (c *core) consumedLocked(p *clusterpb.Partition) bool {
	for _, by := range c.table.Partitions() {
		if by.Keyspace == p.Keyspace && keys.Subsumes(by, p) {
			return true
		}
	}
	return false
}

func (c *core) report(id uint64) (*clusterpb.PartitionReport, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[id], c.reporter[id]
}
