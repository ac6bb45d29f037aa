package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// beginsPerLook bounds the operators that are recorded each time the scheduler looks.
	beginsPerLook = 64
	// stalled is after how long without an advance an operator is cancelled, but for the time that
	// what it copies takes at leastRate (bytes per second), and at most maxCopy; targetSilent is
	// after how long without an answer of the node that gets a replica, or the lead.
	// An operator that waits for one thing after the other, and changes no descriptor meanwhile, is
	// cancelled after mostWaits times as long.
	stalled      = 10 * time.Minute
	mostWaits    = 6
	leastRate    = 1 << 20
	maxCopy      = 24 * time.Hour
	targetSilent = 30 * time.Second
	// A partition whose operator was cancelled is left alone for firstBackoff, which doubles with
	// each failure up to maxBackoff.
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// look is one round of the scheduler.
func (c *scheduler) look(ctx context.Context) error {
	now := time.Now()
	if err := c.watchNodes(ctx, now); err != nil {
		return err
	}
	flights := c.takeIn(now)
	if len(flights) > 0 {
		c.server.poke() // one may have ended by a change of leaders, which is no change of the table
	}
	late := c.late(flights, now)
	var errs []error
	for _, l := range late {
		if err := c.server.giveUp(ctx, l.operator, l.why); err != nil {
			errs = append(errs, err)
		}
	}
	proposed := c.plan(now)
	errs = append(errs, c.server.start(ctx, proposed), c.thaw(ctx, now), c.retire(ctx))
	return errors.Join(errs...)
}

// letRest has nothing proposed for a partition before a time: what was cancelled is not to begin
// again at once. The caller holds mu.
func (c *scheduler) letRest(id keys.PartitionID, until time.Time) {
	f := c.attempts[id]
	if f == nil {
		f = &attempt{}
		c.attempts[id] = f
	}
	if f.until.Before(until) {
		f.until = until
	}
}

// takeIn brings the State up to what was reported and to the operators that there are.
func (c *scheduler) takeIn(now time.Time) map[keys.PartitionID]*serverpb.Operator {
	news, stats := c.server.reports.TakeNews()
	operators := c.server.reports.Operators()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range stats {
		if n := c.nodes[id]; n != nil && c.stats[id] != s {
			c.stats[id] = s
			c.refused(c.state.SetNode(facts.WithStats(facts.Node(n), s)))
		}
	}
	for id, o := range c.flying {
		if operators[id] == nil || operators[id].Id != o.Id {
			// It ended, and the State hears of how before it is not in flight any more.
			c.ended[id] = now
			if o.Cancelled {
				c.letRest(id, now.Add(c.state.Settings().Pause))
			}
			c.refused(c.renew(id))
			if right := keys.PartitionID(o.Right); steps.Merges(o) {
				c.ended[right] = now
				c.refused(c.renew(right))
			}
			delete(c.seen, id)
		}
	}
	for _, id := range news {
		c.refused(c.renew(id))
		if _, known := c.keyspaceOf[id]; !known && c.unknown[id].IsZero() {
			c.unknown[id] = now
		}
	}
	c.forgetUnknown(now)
	c.forgetNonsense(now)
	c.missLeaders(now)
	c.flying = operators
	for id, a := range c.attempts {
		if now.Sub(a.until) > maxBackoff {
			delete(c.attempts, id)
		}
	}
	set := c.state.Settings()
	for id, at := range c.ended {
		if now.Sub(at) > max(time.Hour, set.Pause) {
			delete(c.ended, id)
		}
	}
	for id, at := range c.resized {
		if now.Sub(at) > max(time.Hour, set.SplitPause, set.MergePause) {
			delete(c.resized, id)
		}
	}
	return operators
}

func (c *scheduler) refused(err error) {
	if err != nil {
		c.server.config.Logger.Error("the planner refuses what was reported", "error", err)
	}
}

// lateOperator is one that is to be cancelled.
type lateOperator struct {
	operator *serverpb.Operator
	why      string
}

// late finds the operators that do not come nearer to their ends, or cannot.
func (c *scheduler) late(operators map[keys.PartitionID]*serverpb.Operator,
	now time.Time) (late []lateOperator) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, o := range operators {
		a := c.advanceOf(id, o, now)
		if o.Cancelled {
			continue
		}
		why := c.unfit(o.AddNode, "which was to get a replica", now)
		if why == "" && o.AddNode == 0 {
			why = c.unfit(o.LeadNode, "which was to lead", now)
		}
		if why == "" && steps.Merges(o) {
			why = c.unfitMerge(o, a, now)
		}
		if now.Sub(a.at) >= patience(o) || now.Sub(a.changed) >= mostWaits*patience(o) {
			why = fmt.Sprintf("it has not advanced for %s", now.Sub(a.changed).Round(time.Second))
			if a.waits != "" {
				why += ": " + a.waits
			}
		}
		if why == "" {
			continue
		}
		late = append(late, lateOperator{o, why})
		f := c.attempts[id]
		if f == nil {
			f = &attempt{}
			c.attempts[id] = f
		}
		f.failures++
		f.until = now.Add(min(maxBackoff, firstBackoff<<min(f.failures-1, 10)))
	}
	return late
}

// advanceOf is how far an operator has come. An operator that waits for something else than before
// advances, unless its step fails: errors may alternate for ever.
func (c *scheduler) advanceOf(id keys.PartitionID, o *serverpb.Operator, now time.Time) *advance {
	_, waits := c.server.reports.Progress(id)
	membership := c.server.reports.Membership(id)
	failures := c.server.reports.Failures(id, o.Id)
	if steps.Merges(o) {
		right := keys.PartitionID(o.Right)
		membership += c.server.reports.Membership(right)
		failures += c.server.reports.Failures(right, o.Id)
	}
	a := c.seen[id]
	switch {
	case a == nil || a.operator != o.Id || a.membership != membership:
		a = &advance{operator: o.Id, membership: membership, at: now, changed: now}
		c.seen[id] = a
	case a.waits != waits && failures == 0:
		a.at = now
	}
	a.waits, a.failures = waits, failures
	return a
}

// patience is how long an operator may go without an advance. While a snapshot is sent nothing is
// heard of how far it is, and several share the rate that a node sends at.
func patience(o *serverpb.Operator) time.Duration {
	if o.AddNode == 0 && o.Moves == 0 {
		return stalled
	}
	copying := time.Duration(min(o.Bytes/leastRate, uint64(maxCopy/time.Second))) * time.Second
	return stalled + copying
}

// unfit says why a node cannot be given what it was to get; empty: it can, or it is none.
func (c *scheduler) unfit(id uint64, what string, now time.Time) string {
	n := c.nodes[keys.NodeID(id)]
	if n == nil {
		return ""
	}
	silent := now.Sub(time.UnixMilli(n.SilentSinceUnixMs))
	switch {
	case n.Status != clusterpb.NodeStatus_NODE_ACTIVE:
		return fmt.Sprintf("node %d, %s, is being taken out", id, what)
	case n.SilentSinceUnixMs != 0 && silent >= targetSilent:
		return fmt.Sprintf("node %d, %s, has not answered for %s", id, what,
			silent.Round(time.Second))
	}
	return ""
}

// plan has the planner propose. It proposes nothing until the table is complete and the nodes that
// are alive have reported what they lead, or have had time to.
func (c *scheduler) plan(now time.Time) []planner.Operator {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return nil
	}
	var flights []planner.InFlight
	for id, o := range c.flying {
		f := planner.InFlight{Partition: id}
		if !o.Cancelled {
			f.Add, f.Remove = keys.NodeID(o.AddNode), keys.NodeID(o.RemoveNode)
			if f.Lead = keys.NodeID(o.LeadNode); o.Lead {
				f.Lead = f.Add
			}
			f.Split, f.Right = steps.Splits(o), keys.PartitionID(o.Right)
		} else if steps.Merges(o) {
			flights = append(flights, planner.InFlight{Partition: keys.PartitionID(o.Right)})
		}
		flights = append(flights, f)
	}
	flights = append(flights, c.frozenFlights()...)
	c.proposal, c.planned = c.proposer.Step(now, flights), true
	if now.Sub(c.counted) >= countInterval {
		c.counts, c.counted = c.explainer.Counts(), now
	}
	if !c.informed(now) {
		return nil
	}
	var begin []planner.Operator
	for _, o := range c.proposal.Operators {
		if a := c.attempts[o.Partition]; a != nil && now.Before(a.until) {
			continue
		}
		if begin = append(begin, o); len(begin) == beginsPerLook {
			break
		}
	}
	return begin
}

// informed says whether the nodes that are alive have reported, or have had time to.
func (c *scheduler) informed(now time.Time) bool {
	if now.Sub(c.began) >= reportsMissing*c.server.config.NodeLease {
		return true
	}
	for id, n := range c.nodes {
		if n.Alive && !c.server.reports.Complete(id) {
			return false
		}
	}
	return true
}

// start records operators that the planner proposes, if their partitions are still as it knew them.
func (s *Server) start(ctx context.Context, proposed []planner.Operator) error {
	if len(proposed) == 0 {
		return nil
	}
	done, err := s.meta.Turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	// Settings change in turn with this, so nothing is begun after a pause was answered.
	if settings, err := loadSettings(s.store.Stale()); err != nil || settings.GetPaused() {
		return err
	}
	var errs []error
	for i := range proposed {
		o, conditions, err := s.operatorOf(s.store.Stale(), &proposed[i])
		if err == nil && o != nil {
			if err = s.begin(ctx, o, conditions); err == nil {
				s.metrics.begun(proposed[i].Reason.Cause)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %s: %w", proposed[i].Partition, err))
		}
	}
	return errors.Join(errs...)
}

// operatorOf makes an operator of what the planner proposes; nil if that does not fit any more. The
// conditions say when it still does.
func (s *Server) operatorOf(v *store.View, p *planner.Operator) (
	*serverpb.Operator, []*storepb.Compare, error) {
	stored, revision, err := meta.LoadPartition(v, p.Keyspace, p.Partition)
	if err == nil && stored != nil && p.Kind == planner.Split {
		o, conditions, err := s.proposedSplit(v, p.Keyspace, p.Partition, p.Epoch, []byte(p.Key))
		if o != nil {
			giveReasons(o, p)
		}
		return o, conditions, err
	}
	if err == nil && stored != nil && p.Kind == planner.Merge {
		return s.proposedMerge(v, p)
	}
	if err != nil || stored == nil || len(p.Steps) == 0 {
		return nil, nil, err
	}
	d := s.reports.Newest(p.Partition, stored)
	if e := p.Steps[0].Epoch; d.Generation != e.Generation || d.Membership != e.Membership {
		return nil, nil, nil
	}
	o := &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, Kind: p.Kind.String(),
		Bytes: uint64(p.Bytes), CreatedUnixMs: time.Now().UnixMilli()}
	giveReasons(o, p)
	conditions := []*storepb.Compare{store.ModifiedAt(meta.PartitionKey(p.Keyspace, p.Partition),
		revision)}
	if p.Add != 0 {
		unchanged, status, err := meta.UnchangedNode(v, p.Add)
		if err != nil || status != clusterpb.NodeStatus_NODE_ACTIVE {
			return nil, nil, err
		}
		conditions = append(conditions, unchanged)
		o.AddNode, o.AddReplica = uint64(p.Add), steps.NextReplica(d)
		if there := steps.ReplicaAt(d, p.Add); there != nil {
			o.AddReplica = there.Replica // a learner that is left there is used
		}
	}
	if p.Remove != 0 {
		there := steps.ReplicaAt(d, p.Remove)
		if there == nil {
			return nil, nil, nil
		}
		o.RemoveNode, o.RemoveReplica = uint64(p.Remove), there.Replica
	}
	switch {
	case p.Lead == 0:
	case p.Lead == p.Add:
		o.Lead = true
	default:
		there := steps.ReplicaAt(d, p.Lead)
		if there == nil {
			return nil, nil, nil
		}
		o.LeadNode, o.LeadReplica = uint64(p.Lead), there.Replica
	}
	return o, conditions, nil
}

// giveReasons copies the reasons of the planner into a stored operator.
func giveReasons(o *serverpb.Operator, p *planner.Operator) {
	o.Reason, o.ScoreBefore, o.ScoreAfter = p.Reason.String(), p.Before.String(), p.After.String()
	if p.Rejected != nil {
		o.Rejected = p.Rejected.String()
	}
}

// begin records an operator, if its partition has none and the conditions hold. The caller has the
// turn.
func (s *Server) begin(ctx context.Context, o *serverpb.Operator,
	conditions []*storepb.Compare) error {
	ids, revision, err := meta.LoadIDs(s.store.Stale())
	if err != nil {
		return err
	}
	o.Id = ids.Operator
	ids.Operator++
	if steps.Splits(o) {
		// It is not given out again, whatever becomes of the split.
		o.Child = ids.Partition
		ids.Partition++
	}
	key := meta.OperatorKey(keys.PartitionID(o.Partition))
	conditions = append(conditions, store.Absent(key),
		store.Absent(meta.HeldKey(keys.PartitionID(o.Partition))),
		store.ModifiedAt([]byte(meta.IDsKey), revision))
	ops := []*storepb.Op{store.Put(key, meta.Encode(o)),
		store.Put([]byte(meta.IDsKey), meta.Encode(ids))}
	if steps.Merges(o) {
		right := keys.PartitionID(o.Right)
		conditions = append(conditions, store.Absent(meta.OperatorKey(right)),
			store.Absent(meta.HeldKey(right)))
		ops = append(ops, store.Put(meta.HeldKey(right), meta.EncodeID(o.Partition)))
	}
	ok, err := s.meta.Commit(ctx, conditions, ops...)
	if err != nil {
		return err
	}
	if !ok {
		return meta.Conflict(fmt.Sprintf("partition %d", o.Partition))
	}
	s.config.Logger.Info("operator begins", "operator", o.Id, "kind", o.Kind, "partition",
		o.Partition, "to", o.AddNode, "from", o.RemoveNode, "leader", o.LeadNode, "child", o.Child,
		"right", o.Right, "because", o.Reason)
	s.reports.BeginOperator(o)
	s.poke()
	return nil
}

// giveUp has an operator taken back, if it is still there.
func (s *Server) giveUp(ctx context.Context, o *serverpb.Operator, why string) error {
	key := meta.OperatorKey(keys.PartitionID(o.Partition))
	now := &serverpb.Operator{}
	v := s.store.Stale()
	revision, err := meta.Load(v, key, now)
	if err != nil || revision == 0 || now.Id != o.Id || now.Cancelled {
		return err
	}
	if err := s.markCancelled(v, now, why); err != nil {
		return err
	}
	ok, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(key, revision)},
		store.Put(key, meta.Encode(now)))
	if err != nil || !ok {
		return err
	}
	s.config.Logger.Warn("operator is cancelled", "operator", o.Id, "partition", o.Partition,
		"because", why)
	s.reports.BeginOperator(now)
	s.poke()
	return nil
}
