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
		if err := c.server.operators.GiveUp(ctx, l.operator, l.why); err != nil {
			errs = append(errs, err)
		}
	}
	proposed := c.plan(now)
	errs = append(errs, c.server.operators.BeginProposed(ctx, proposed), c.thaw(ctx, now), c.retire(ctx))
	return errors.Join(errs...)
}

// letRest has nothing proposed for a partition before a time: what was cancelled is not to begin
// again at once. The caller holds mu.
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
	for id, o := range c.operators.flying {
		if operators[id] == nil || operators[id].Id != o.Id {
			// It ended, and the State hears of how before it is not in flight any more.
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

// informed says whether the nodes that are alive have reported, or have had time to.
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
