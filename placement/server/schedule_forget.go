package server

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// unknownFor is for how long a partition that the table does not have is reported before what was
// reported is forgotten: a new one is reported before the scheduler has heard of it, and one that
// was dropped until its nodes have.
const unknownFor = time.Minute

// forgetUnknown drops what was reported of partitions that there are not. It would take the room of
// others. A partition that is to split off stays: its leader reports it once, and the table may
// come to have it late. The caller holds mu.
func (c *scheduler) forgetUnknown(now time.Time) {
	if !c.complete {
		return
	}
	coming := map[keys.PartitionID]bool{}
	for _, o := range c.operators.flying {
		coming[keys.PartitionID(o.Child)] = true
	}
	var gone []keys.PartitionID
	for id, since := range c.reported.unknown {
		_, known := c.keyspaceOf[id]
		if !known && (now.Sub(since) < unknownFor || coming[id]) {
			continue
		}
		delete(c.reported.unknown, id)
		if !known {
			gone = append(gone, id)
		}
	}
	c.server.reports.Drop(gone)
}

// aheadFor is for how long a report may have an epoch of which no descriptor has come. A leader
// that has just changed its descriptor reports it as soon as an entry behind the change is applied.
const aheadFor = time.Minute

// forgetNonsense drops reports that claim an epoch and never show it: they would keep the true
// leader of the partition from being heard. The caller holds mu.
func (c *scheduler) forgetNonsense(now time.Time) {
	for id, since := range c.reported.ahead {
		if now.Sub(since) < aheadFor {
			continue
		}
		delete(c.reported.ahead, id)
		d, _, err := meta.LoadPartition(c.server.config.Store.Stale(), c.keyspaceOf[id], id)
		if err != nil || d == nil {
			continue
		}
		if newest := c.server.reports.Newest(id, d); c.server.reports.Ahead(newest) {
			c.server.config.Logger.Error("what a node reports of a partition cannot be, and is forgotten",
				"partition", id)
			c.server.reports.Distrust(d)
		}
	}
}

// leaderlessFor is after how long without a leader the nodes of a partition that has split off are
// asked for everything that they lead.
const leaderlessFor = 10 * time.Second

// missLeaders asks for the leaders of partitions that have split off. One that was reported long
// before the table had the partition may have been forgotten, and its node reports nothing twice.
// The caller holds mu.
func (c *scheduler) missLeaders(now time.Time) {
	for id, since := range c.reported.born {
		leader, _ := c.server.reports.Progress(id)
		if leader == 0 && now.Sub(since) < leaderlessFor {
			continue
		}
		delete(c.reported.born, id)
		if leader != 0 {
			continue
		}
		if d, _, err := meta.LoadPartition(c.server.config.Store.Stale(), c.keyspaceOf[id], id); d != nil &&
			err == nil {
			c.server.reports.Ask(d)
		}
	}
}
