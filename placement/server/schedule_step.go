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
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// beginsPerLook limits the operators that are recorded in each round.
	beginsPerLook = 64
	// An operator is cancelled after the time stalled without an advance. If it copies data, it gets
	// additional time: the time to copy at leastRate (bytes per second), at most maxCopy. An operator
	// that keeps waiting for different things, and changes no descriptor meanwhile, is cancelled after
	// mostWaits times as long. An operator is also cancelled if the node that should get a replica or
	// the leadership has not answered for targetSilent.
	stalled      = 10 * time.Minute
	mostWaits    = 6
	leastRate    = 1 << 20
	maxCopy      = 24 * time.Hour
	targetSilent = 30 * time.Second
	// After an operator was cancelled, its partition gets no operator for firstBackoff. The time
	// doubles with each failure up to maxBackoff.
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// look runs one round of the scheduler.
func (c *scheduler) look(ctx context.Context) error {
	now := time.Now()
	if err := c.watchNodes(ctx, now); err != nil {
		return err
	}
	flights := c.takeIn(now)
	c.measureQuotas(now)
	if len(flights) > 0 {
		c.server.poke() // a change of leaders may complete an operator; the table does not show it
	}
	late := c.late(flights, now)
	var errs []error
	for _, l := range late {
		if err := c.server.operators.GiveUp(ctx, l.operator, l.why); err != nil {
			errs = append(errs, err)
		}
	}
	proposed := c.plan(now)
	errs = append(errs, c.server.operators.BeginProposed(ctx, proposed), c.thaw(ctx, now), c.retire(ctx))
	return errors.Join(errs...)
}

// letRest prevents proposals for a partition until a time, so that a cancelled operator does not
// begin again at once. The caller holds mu.
func (c *scheduler) letRest(id keys.PartitionID, until time.Time) {
	f := c.operators.attempts[id]
	if f == nil {
		f = &attempt{}
		c.operators.attempts[id] = f
	}
	if f.until.Before(until) {
		f.until = until
	}
}

// takeIn updates the State from the reports and the current operators.
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
	for id, o := range c.operators.flying {
		if operators[id] == nil || operators[id].Id != o.Id {
			// The operator ended. The State is told how before it learns that the operator is no longer in
			// flight.
			c.operators.ended[id] = now
			if o.Cancelled {
				c.letRest(id, now.Add(c.state.Settings().Pause))
			}
			c.refused(c.renew(id))
			if right := keys.PartitionID(o.Right); steps.Merges(o) {
				c.operators.ended[right] = now
				c.refused(c.renew(right))
			}
			delete(c.operators.seen, id)
		}
	}
	for _, id := range news {
		c.refused(c.renew(id))
		if _, known := c.keyspaceOf[id]; !known && c.reported.unknown[id].IsZero() {
			c.reported.unknown[id] = now
		}
	}
	c.forgetUnknown(now)
	c.forgetNonsense(now)
	c.missLeaders(now)
	c.operators.flying = operators
	for id, a := range c.operators.attempts {
		if now.Sub(a.until) > maxBackoff {
			delete(c.operators.attempts, id)
		}
	}
	set := c.state.Settings()
	for id, at := range c.operators.ended {
		if now.Sub(at) > max(time.Hour, set.Pause) {
			delete(c.operators.ended, id)
		}
	}
	for id, at := range c.layout.resized {
		if now.Sub(at) > max(time.Hour, set.SplitPause, set.MergePause) {
			delete(c.layout.resized, id)
		}
	}
	return operators
}

func (c *scheduler) refused(err error) {
	if err != nil {
		c.server.config.Logger.Error("the planner refuses a report of partitions or nodes", "error", err)
	}
}

// lateOperator is an operator that will be cancelled.
type lateOperator struct {
	operator *serverpb.Operator
	why      string
}

// late finds the operators that make no progress, or can make none.
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
		f := c.operators.attempts[id]
		if f == nil {
			f = &attempt{}
			c.operators.attempts[id] = f
		}
		f.failures++
		f.until = now.Add(min(maxBackoff, firstBackoff<<min(f.failures-1, 10)))
	}
	return late
}

// advanceOf returns the progress of an operator. An operator that waits for something else than
// before has advanced, unless its step fails: different errors may alternate for ever.
func (c *scheduler) advanceOf(id keys.PartitionID, o *serverpb.Operator, now time.Time) *advance {
	_, waits := c.server.reports.Progress(id)
	membership := c.server.reports.Membership(id)
	failures := c.server.reports.Failures(id, o.Id)
	if steps.Merges(o) {
		right := keys.PartitionID(o.Right)
		membership += c.server.reports.Membership(right)
		failures += c.server.reports.Failures(right, o.Id)
	}
	a := c.operators.seen[id]
	switch {
	case a == nil || a.operator != o.Id || a.membership != membership:
		a = &advance{operator: o.Id, membership: membership, at: now, changed: now}
		c.operators.seen[id] = a
	case a.waits != waits && failures == 0:
		a.at = now
	}
	a.waits, a.failures = waits, failures
	return a
}

// patience is the time that an operator may take without an advance. The progress of a snapshot is
// not reported while it is sent, and several snapshots share the sending rate of a node.
func patience(o *serverpb.Operator) time.Duration {
	if o.AddNode == 0 && o.Moves == 0 {
		return stalled
	}
	copying := time.Duration(min(o.Bytes/leastRate, uint64(maxCopy/time.Second))) * time.Second
	return stalled + copying
}

// unfit returns the reason why a node cannot get a replica or the leadership. It returns an empty
// string if the node can, or if there is no such node.
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

// plan runs a step of the planner, and returns the operators to begin. It returns none until the
// table is complete and the live nodes have reported which partitions they lead, or have had enough
// time to report.
func (c *scheduler) plan(now time.Time) []planner.Operator {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return nil
	}
	var flights []planner.InFlight
	for id, o := range c.operators.flying {
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
	c.last.proposal, c.last.planned = c.proposer.Step(now, flights), true
	if now.Sub(c.last.counted) >= countInterval {
		c.last.counts, c.last.counted = c.explainer.Counts(), now
	}
	if !c.informed(now) {
		return nil
	}
	var begin []planner.Operator
	for _, o := range c.last.proposal.Operators {
		if a := c.operators.attempts[o.Partition]; a != nil && now.Before(a.until) {
			continue
		}
		if begin = append(begin, o); len(begin) == beginsPerLook {
			break
		}
	}
	return begin
}

// informed reports whether the live nodes have reported, or have had enough time to report.
func (c *scheduler) informed(now time.Time) bool {
	if now.Sub(c.began) >= reportsMissing*meta.NodeLeaseTime {
		return true
	}
	for id, n := range c.nodes {
		if n.Alive && !c.server.reports.Complete(id) {
			return false
		}
	}
	return true
}
