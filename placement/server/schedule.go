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
	// scheduleInterval is the interval between two rounds of the scheduler.
	scheduleInterval = time.Second
	// reportsMissing limits how long the scheduler waits for the reports of live nodes before it plans
	// without them. It is a number of lease times of a node.
	reportsMissing = 3
	// countInterval is the interval at which all partitions are counted for the gauges.
	countInterval = 15 * time.Second
)

// scheduler updates the planner's State from the table and the reports while this member leads the
// core, and records the operators that the planner proposes. Its other state only controls the
// pace. The next leader starts again from the stored records.
//
// Two goroutines use the scheduler from New to Close, while this member leads: one follows the
// table, and the other runs a round every scheduleInterval. Both hold mu while they use the State.
type scheduler struct {
	server *Server

	mu sync.Mutex
	// state, proposer and explainer are the planner. They are nil unless this member leads.
	state     *state.State
	proposer  *propose.Proposer
	explainer *explain.Explainer
	// complete is set when the whole table was read.
	complete bool
	// began is the time at which this leadership began.
	began time.Time
	// keyspaceOf has the keyspaces of the partitions that the State knows. nodes has the nodes
	// according to the table.
	keyspaceOf map[keys.PartitionID]keys.KeyspaceID
	nodes      map[keys.NodeID]*clusterpb.Node
	stats      map[keys.NodeID]*clusterpb.NodeStats
	layout     layout
	reported   mismatches
	// frozen has the partitions that are frozen according to the table.
	frozen    map[keys.PartitionID]freeze
	operators operatorHistory
	last      lastStep
}

// mismatches has the partitions whose reports do not match the table, each with the time since
// which that is so.
type mismatches struct {
	// unknown are partitions that nodes report and the table does not have. ahead are partitions that
	// are reported with an epoch whose descriptor was not reported. born are partitions that have
	// split off during this leadership and whose leader is not known yet.
	unknown, ahead, born map[keys.PartitionID]time.Time
}

// operatorHistory is the scheduler's memory of operators, by their partitions.
type operatorHistory struct {
	// flying has the operators that the State knows. seen has their progress.
	flying map[keys.PartitionID]*serverpb.Operator
	seen   map[keys.PartitionID]*advance
	// ended has the time at which the last operator of a partition ended. attempts has the operators
	// that failed recently.
	ended    map[keys.PartitionID]time.Time
	attempts map[keys.PartitionID]*attempt
}

// lastStep is the result of the planner's last step.
type lastStep struct {
	// planned is set when the State was stepped after it was complete. Before that it cannot be asked.
	planned bool
	// proposal is the result of the step. counts has the numbers of partitions with problems, computed
	// at the time counted.
	proposal planner.Proposal
	counts   explain.Counts
	counted  time.Time
}

// attempt describes changes of a partition that failed. The next change waits until `until`.
type attempt struct {
	failures int
	until    time.Time
}

// advance describes the progress of an operator. changed is the time at which a descriptor last
// changed. at is the time at which the operator last changed a descriptor or began to wait for
// something else. failures counts the failures of the current step.
type advance struct {
	operator    uint64
	membership  uint64
	waits       string
	failures    uint64
	at, changed time.Time
}

// freeze describes a frozen partition. since is the time at which the freeze became known. adrift
// is the later of the time since which no operator merges the partition, and the time of the last
// attempt to thaw it.
type freeze struct{ since, adrift time.Time }

// run is the main loop of the scheduler.
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

// lead schedules until the leadership of a term ends.
func (c *scheduler) lead(term uint64, changed <-chan struct{}) {
	s := c.server
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.reports.BeginTerm(term)
	s.quotas.Reset()
	defer s.quotas.Reset()
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

// rest waits before the scheduler tries again. It returns early if the leadership changes.
func (c *scheduler) rest(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-changed:
	case <-time.After(scheduleInterval):
	}
}

func (c *scheduler) begin() error {
	s := c.server
	ended, resized, err := lastEnded(s.config.Store.Stale())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// With the lock held: setSettings tells a scheduler that has not begun nothing. Its call was before
	// this moment then, and the settings are stored by now.
	settings, err := loadSettings(s.config.Store.Stale())
	if err != nil {
		return err
	}
	known, err := state.New(settings.planner(s.config.Planner))
	if err != nil {
		return err
	}
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

// follow processes an update of the table.
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
	c.server.quotas.Follow(u)
	if err := errors.Join(errs...); err != nil {
		// A record that the planner cannot process is skipped. The rest of the update is processed.
		c.server.config.Logger.Error("the planner refuses the partition table", "error", err)
	}
	return nil
}

// measureQuotas records how many bytes each keyspace with a quota of bytes has. It does so only
// after all nodes have reported.
func (c *scheduler) measureQuotas(now time.Time) {
	sized := c.server.quotas.Sized()
	if len(sized) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil || !c.complete || !c.informed(now) {
		return
	}
	for _, id := range sized {
		c.server.quotas.SetUsed(id, uint64(max(c.state.BytesOf(id), 0)))
	}
}

// set gives the State the facts about a partition, given the partition's descriptor in the table.
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

// renew gives the State the facts about a partition again.
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

// Keyspace returns the keyspace of a partition. It returns false if the scheduler does not know the
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

// Partitions returns the number of partitions in the table. known is false if the scheduler has not
// read the whole table.
func (c *scheduler) Partitions() (n int, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keyspaceOf), c.complete
}

// lastEnded returns the times at which the last operator of each partition ended, and at which the
// partition last split or merged, as far as the kept events show.
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
