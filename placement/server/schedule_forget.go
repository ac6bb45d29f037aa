package server

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// unknownFor is the time after which reports of a partition that the table does not have are
// forgotten. A new partition may be reported before the scheduler sees it in the table. A dropped
// partition is reported until its nodes learn of the drop.
const unknownFor = time.Minute

// forgetUnknown forgets the reports of partitions that do not exist, because their number is
// limited. A partition that will split off stays: its leader reports it only once, and the table
// may get it late. The caller holds mu.
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

// aheadFor is the time for which a report may have an epoch whose descriptor was not reported. A
// leader that has changed its descriptor reports the descriptor as soon as it has applied an entry
// after the change.
const aheadFor = time.Minute

// forgetNonsense forgets reports with an epoch whose descriptor never comes. Such a report would
// hide the reports of the real leader of the partition. The caller holds mu.
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

// leaderlessFor is the time after which the nodes of a new partition without a known leader are
// asked to report all partitions that they lead.
const leaderlessFor = 10 * time.Second

// missLeaders asks for the leaders of partitions that have split off. The report of such a leader
// may have come long before the partition was in the table and may have been forgotten. Nodes do
// not repeat a report on their own. The caller holds mu.
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
