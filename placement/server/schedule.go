package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/explain"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/propose"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// scheduleInterval is how often the scheduler looks.
	scheduleInterval = time.Second
	// reportsMissing is for how many leases of a node the scheduler waits for the reports of nodes
	// that are alive, before it plans without them.
	reportsMissing = 3
	// countInterval is how often all partitions are looked at for the gauges.
	countInterval = 15 * time.Second
)

// scheduler has the planner's State follow the table and the reports while this member leads the
// core, and records the operators that the planner proposes. What it remembers beside that is for
// the pace only; the next leader begins anew from what is stored.
//
// Two goroutines work at it, from New to Close, while this member leads: one follows the table, the
// other looks every scheduleInterval. Both hold mu while they touch the State.
type scheduler struct {
	server *Server

	mu sync.Mutex
	// state, proposer and explainer are the planner; they are nil unless this member leads.
	state     *state.State
	proposer  *propose.Proposer
	explainer *explain.Explainer
	// complete: everything in the table was taken in.
	complete bool
	// began is when this leadership did.
	began time.Time
	// keyspaceOf are the partitions that the State knows, nodes the nodes as the table has them.
	keyspaceOf map[keys.PartitionID]keys.KeyspaceID
	nodes      map[keys.NodeID]*clusterpb.Node
	stats      map[keys.NodeID]*clusterpb.NodeStats
	layout     layout
	reported   mismatches
	// frozen are partitions that the table has frozen.
	frozen    map[keys.PartitionID]freeze
	operators operatorHistory
	last      lastStep
}

// mismatches are partitions whose reports do not match the table, by since when.
type mismatches struct {
	// unknown are partitions that nodes report and the table does not have. ahead are partitions that
	// are reported with an epoch of which no descriptor has come. born are partitions that have split
	// off during this leadership and whose leader is not known yet.
	unknown, ahead, born map[keys.PartitionID]time.Time
}

// operatorHistory is what the scheduler remembers of operators, by their partitions.
type operatorHistory struct {
	// flying are the operators that the State was told of, seen how they went on.
	flying map[keys.PartitionID]*serverpb.Operator
	seen   map[keys.PartitionID]*advance
	// ended is when the last operator of a partition did. attempts are those that failed lately.
	ended    map[keys.PartitionID]time.Time
	attempts map[keys.PartitionID]*attempt
}

// lastStep is what the planner said last.
type lastStep struct {
	// planned: the State was stepped since it is complete, so it can be asked.
	planned bool
	// proposal is what the step proposed. counts counts what is wrong with how many partitions, as
	// of counted.
	proposal planner.Proposal
	counts   explain.Counts
	counted  time.Time
}

// attempt is a change that failed: the next one waits.
type attempt struct {
	failures int
	until    time.Time
}

// advance is when an operator last came nearer to its end: changed is when a descriptor did, and at
// when the operator last waited for something new. failures counts how often the present step has
// failed.
type advance struct {
	operator    uint64
	membership  uint64
	waits       string
	failures    uint64
	at, changed time.Time
}

// freeze is since when it is known that a partition is frozen, and since when no operator merges
// it, or nothing was done about that.
type freeze struct{ since, adrift time.Time }

// run is the scheduler's goroutine.
func (c *scheduler) run() {
	s := c.server
	for s.ctx.Err() == nil {
		l, changed := s.config.Store.Leadership()
		if l.Serving {
			c.lead(l.Term, changed)
			continue
		}
		select {
		case <-s.ctx.Done():
		case <-changed:
		}
	}
}

// lead schedules until the leadership of a term is over.
func (c *scheduler) lead(term uint64, changed <-chan struct{}) {
	s := c.server
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.reports.BeginTerm(term)
	if err := c.begin(); err != nil {
		s.config.Logger.Error("placement cannot be planned; it will be tried again", "error", err)
		c.rest(ctx, changed)
		return
	}
	defer c.end()
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	broken := make(chan error, 1)
	following.Go(func() { broken <- s.table.Subscribe(ctx, c.follow) })
	ticker := time.NewTicker(scheduleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			var l store.Leadership
			if l, changed = s.config.Store.Leadership(); !l.Serving || l.Term != term {
				return
			}
		case err := <-broken:
			if ctx.Err() == nil {
				s.config.Logger.Warn("planning begins anew", "error", err)
			}
			c.rest(ctx, changed)
			return
		case <-ticker.C:
			if err := c.look(ctx); err != nil && ctx.Err() == nil {
				if _, refused, _ := hint.Of(err); !refused {
					s.config.Logger.Warn("planning is interrupted", "error", err)
				}
			}
		}
	}
}

// rest waits before the scheduler tries again, unless the leadership changes.
func (c *scheduler) rest(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(scheduleInterval):
	}
}

func (c *scheduler) begin() error {
	s := c.server
	settings, err := loadSettings(s.config.Store.Stale())
	if err != nil {
		return err
	}
	known, err := state.New(settings.planner(s.config.Planner))
	if err != nil {
		return err
	}
	ended, resized, err := lastEnded(s.config.Store.Stale())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := objective.New(known)
	c.state, c.proposer = known, propose.New(known, o)
	c.explainer = explain.New(known, o, c.proposer)
	c.complete, c.began = false, time.Now()
	c.keyspaceOf = map[keys.PartitionID]keys.KeyspaceID{}
	c.nodes = map[keys.NodeID]*clusterpb.Node{}
	c.stats = map[keys.NodeID]*clusterpb.NodeStats{}
	c.layout = newLayout(resized)
	c.reported = mismatches{unknown: map[keys.PartitionID]time.Time{},
		ahead: map[keys.PartitionID]time.Time{}, born: map[keys.PartitionID]time.Time{}}
	c.frozen = map[keys.PartitionID]freeze{}
	c.operators = operatorHistory{flying: map[keys.PartitionID]*serverpb.Operator{},
		seen: map[keys.PartitionID]*advance{}, ended: ended,
		attempts: map[keys.PartitionID]*attempt{}}
	c.last = lastStep{}
	return nil
}

func (c *scheduler) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.proposer, c.explainer = nil, nil, nil
	c.complete, c.last = false, lastStep{}
}

// follow takes an update of the table in.
func (c *scheduler) follow(u *clusterpb.TableUpdate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.Reset_ {
		return errors.New("the table was compacted")
	}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, n := range u.Nodes {
		id := keys.NodeID(n.Id)
		c.nodes[id] = n
		note(c.state.SetNode(facts.WithStats(facts.Node(n), c.stats[id])))
	}
	for _, k := range u.Keyspaces {
		if k.State != clusterpb.KeyspaceState_ACTIVE {
			c.state.RemoveKeyspace(keys.KeyspaceID(k.Id))
			continue
		}
		ks, err := facts.Keyspace(k)
		if err == nil {
			err = c.state.SetKeyspace(ks)
		}
		note(err)
	}
	for _, id := range u.RemovedKeyspaces {
		c.state.RemoveKeyspace(keys.KeyspaceID(id))
	}
	beside := c.arrange(u, time.Now())
	for _, p := range u.Partitions {
		id := keys.PartitionID(p.Id)
		if _, known := c.keyspaceOf[id]; !known && c.complete && p.SplitFrom != 0 {
			c.reported.born[id] = time.Now()
		}
		c.keyspaceOf[id] = keys.KeyspaceID(p.Keyspace)
		switch {
		case p.Frozen == nil:
			delete(c.frozen, id)
		case c.frozen[id].since.IsZero():
			c.frozen[id] = freeze{time.Now(), time.Now()}
		}
		note(c.set(p))
	}
	for _, id := range u.RemovedPartitions {
		id := keys.PartitionID(id)
		c.state.RemovePartition(id)
		delete(c.keyspaceOf, id)
		delete(c.operators.ended, id)
		delete(c.operators.attempts, id)
		delete(c.reported.ahead, id)
		delete(c.reported.born, id)
		delete(c.frozen, id)
	}
	for _, id := range beside {
		note(c.renew(id))
	}
	c.complete = c.complete || u.Complete
	if err := errors.Join(errs...); err != nil {
		// What cannot be planned for is left as it is; the rest goes on.
		c.server.config.Logger.Error("the planner refuses what the table says", "error", err)
	}
	return nil
}

// set tells the State what is known of a partition, given its descriptor in the table.
func (c *scheduler) set(d *clusterpb.Partition) error {
	id := keys.PartitionID(d.Id)
	seen := c.server.reports
	newest := seen.Newest(id, d)
	if !seen.Ahead(newest) {
		delete(c.reported.ahead, id)
	} else if c.reported.ahead[id].IsZero() {
		c.reported.ahead[id] = time.Now()
	}
	return c.state.SetPartition(facts.Partition(newest, seen.Of(id), c.around(id)))
}

// renew tells the State of a partition anew.
func (c *scheduler) renew(id keys.PartitionID) error {
	keyspace, known := c.keyspaceOf[id]
	if !known {
		return nil
	}
	d, _, err := meta.LoadPartition(c.server.config.Store.Stale(), keyspace, id)
	if err != nil || d == nil {
		return err
	}
	return c.set(d)
}

// Keyspace returns the keyspace of a partition; false: the scheduler has not heard of the
// partition.
func (c *scheduler) Keyspace(id keys.PartitionID) (ks keys.KeyspaceID, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return 0, false
	}
	ks, known = c.keyspaceOf[id]
	return ks, known
}

// Partitions returns how many partitions the table has, if the scheduler has read it.
func (c *scheduler) Partitions() (n int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keyspaceOf), c.complete
}

// lastEnded is when the last operator of each partition ended, and when it last split or merged, as
// far as events are kept.
func lastEnded(v *store.View) (ended, resized map[keys.PartitionID]time.Time, err error) {
	ended, resized = map[keys.PartitionID]time.Time{}, map[keys.PartitionID]time.Time{}
	kinds := map[string]bool{planner.Split.String(): true, planner.Merge.String(): true}
	err = meta.EventsBackwards(v, func(e *clusterpb.Event) bool {
		id, at := keys.PartitionID(e.Partition), time.UnixMilli(e.UnixMs)
		if _, later := ended[id]; e.Operator != 0 && !later {
			ended[id] = at
		}
		if _, later := resized[id]; kinds[e.Kind] && !later {
			resized[id] = at
		}
		return true
	})
	return ended, resized, err
}
