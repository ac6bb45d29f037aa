package node

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// stallTicks is how many ticks in a row must find the log standing still: a process that was
	// stopped finds one such write when it goes on.
	stallTicks = 2
	// averseFor is for how many election timeouts a node does not want to lead after its disk
	// was full or stalled, so that
	// leaderships do not go to and fro with a disk that is full every other moment.
	averseFor = 10
	// slowKeepsFor is for how many election timeouts a node keeps a leadership that it has got
	// although its disk is slow. It gets one only where no other replica can lead, or as the core has
	// ordered so to change the replicas; the core's next step must find it there.
	slowKeepsFor = 5
	// spareRoom is the part of the reserve that a follower without room still fills with entries
	// under way: one in so many.
	spareRoom = 4
	// reserveParts is in how many parts the reserve is divided for shares (group.Share).
	reserveParts = 16
	// wakingsPerCheck bounds the sleeping groups that a node with a slow disk wakes in a tick to hand
	// them over.
	wakingsPerCheck = 20
	// nearReserves is at how many reserves of free space what is under way begins to count.
	nearReserves = 16
)

// disk is whether this node's disks are good enough to lead. A leader whose log cannot be written
// answers nothing, and one without room refuses writes, while the followers have all it takes. So
// it hands over to nodes that say in their pings that they are better off. If none is, it keeps
// what it leads: with a full disk reads go on.
type disk struct {
	// Of the health goroutine.
	stalledTicks int
	// yielding is until when leaderships are not given away again, of Node.now.
	yielding map[*hosted.Replica]int64
	// averseUntil is until when this node leaves the lead to others, of Node.now.
	averseUntil int64
	trouble     diskTrouble

	// share is the smallest share of the reserve that may be used, a group.Share.
	share atomic.Uint32
}

// sharedReserve is for each share how many parts of the reserve entries leave (kept), and how many
// must be free for the node to say that it takes them (least). Between the two is room for what is
// under way when it says so no more.
var sharedReserve = [group.Shares]struct{ kept, least int64 }{
	group.NoShare:         {kept: reserveParts - reserveParts/spareRoom},
	group.DeletionShare:   {kept: 8, least: 10},
	group.CollectionShare: {kept: 6, least: 7},
}

type diskTrouble int

const (
	diskGood diskTrouble = iota
	// diskIsSlow: other nodes would lead better, and this one leads well enough if they cannot.
	diskIsSlow
	diskHasNoRoom
	diskStandsStill
)

// considerDisk is called with every tick.
func (n *Node) considerDisk() {
	d, now := &n.disk, n.base.Now()
	room := n.roomForEntries()
	room.None = n.base.DiskFull()
	n.disk.share.Store(uint32(room.Takes))
	n.host.SetRoom(room)
	trouble := n.diskTrouble()
	able := trouble <= diskIsSlow
	if !able {
		d.averseUntil = now + averseFor*int64(n.config.electionTimeout())
	}
	fit := n.health.Fit()
	n.host.SetLeaderAverse(trouble != diskGood || now < d.averseUntil || !fit, able && fit)
	if was := d.trouble; trouble != was {
		d.trouble = trouble
		if was <= diskIsSlow {
			n.host.PingNow() // before anything is handed over, so that nothing is handed back
		}
		switch {
		case trouble == diskStandsStill:
			n.log.Warn("the Raft log cannot be written; leaderships go to other nodes", "for",
				n.host.Log().Writing().Round(time.Millisecond))
		case was == diskStandsStill:
			n.log.Info("the Raft log can be written again")
		}
	}
	if trouble == diskGood || !fit {
		return
	}
	rank, lag := n.leadsBetter, uint64(host.AnyLag)
	if able {
		// It can wait for a follower that lags.
		rank, lag = n.leadsWell, host.NearlyAll
	}
	budget, wakings := abdicationsPerCheck, wakingsPerCheck
	maps.DeleteFunc(d.yielding, func(_ *hosted.Replica, until int64) bool { return now >= until })
	for _, h := range n.leaders.Led() {
		if budget == 0 {
			return
		}
		// What sleeps waits for no disk. What was given away and is here still waits for the
		// transfer to end.
		asleep := !h.Group.Awake()
		if (trouble == diskStandsStill && asleep) || now < d.yielding[h] ||
			(able && now < h.LedSince.Load()+slowKeepsFor*int64(n.config.electionTimeout())) {
			continue
		}
		if able && asleep {
			// Its followers' progress is as old as its sleep. It is handed over at a later tick.
			if wakings > 0 && n.host.Awake() < busyGroups && n.betterFor(h) {
				wakings--
				h.Group.Wake()
			}
			continue
		}
		// A tick later than Raft's leader looks, at the same intervals, which followers are active.
		d.yielding[h] = now + int64(n.config.electionTimeout()+n.config.Tick)
		budget--
		n.giveAway(h, rank, lag, h.Replica.TransferLeader)
	}
}

// betterFor says whether a partition has a replica on a node that would lead well.
func (n *Node) betterFor(h *hosted.Replica) bool {
	members := h.Replica.Configuration()
	return slices.ContainsFunc(members.Members, func(m group.Member) bool {
		return m.Host != uint64(n.config.ID) && members.Electable(m.Replica) &&
			!n.host.PeerDown(m.Host) && n.leadsWell(m.Host) > 0
	})
}

// DiskSlow says whether the log takes many times longer to sync than those of other nodes.
func (n *Node) DiskSlow() bool {
	slow, _ := n.host.DiskSlow()
	return slow
}

// roomShare is the smallest share of the reserve of which entries may be proposed on a full disk.
func (n *Node) roomShare() group.Share { return group.Share(n.disk.share.Load()) }

// roomForEntries is how much of the disk may be taken for entries, and notes whether the reserve is
// short. Both databases are on one disk, and what either is still to write counts for both: what is
// in memtables, and what is in the logs and to be applied.
//
// The free space is what the databases have seen: this goroutine must not wait for a disk that
// stands still.
func (n *Node) roomForEntries() (room host.Room) {
	log, state := n.config.Log, n.config.State
	reserve := int64(log.MinFreeBytes())
	seen := log.FreeBytes()
	if state.FreeAt() > log.FreeAt() {
		seen = state.FreeBytes()
	}
	free := int64(min(seen, math.MaxInt64))
	left := free - log.UnflushedBytes() - state.UnflushedBytes()
	full := log.Full() || state.Full()
	if reserve == 0 || free == 0 || left/nearReserves >= reserve {
		n.base.DiskShort.Store(false)
		if !full {
			for share := range room.Bytes {
				room.Bytes[share] = host.Unbounded
			}
		}
		return room
	}
	left -= n.host.UnappliedBytes()
	n.base.DiskShort.Store(left < reserve)
	// A compaction gives way: what it has taken counts as free for what leads to more room.
	left += log.ScratchBytes() + state.ScratchBytes()
	for share, of := range sharedReserve {
		room.Bytes[share] = left - reserve/reserveParts*of.kept
		if full { // perhaps by a quota that the free space does not show
			room.Bytes[share] = min(room.Bytes[share], reserve-reserve/reserveParts*of.kept)
		}
	}
	for share := group.CollectionShare; share > group.NoShare; share-- {
		if least := reserve / reserveParts * sharedReserve[share].least; left >= least &&
			!log.Waits() && !state.Waits() {
			room.Takes = share
		}
	}
	return room
}

// leadsWell ranks hosts for a node whose disk is slow: one that does not want to lead is no better,
// and one that is being taken out is to lead nothing.
func (n *Node) leadsWell(host uint64) int {
	if n.host.Clocks().Agrees(host) && !n.host.PeerLeaderAverse(host) &&
		n.tables.Load().Node(keys.NodeID(host)).GetStatus() == clusterpb.NodeStatus_NODE_ACTIVE {
		return 1
	}
	return 0
}

// leadsBetter ranks hosts for a node whose disk is no good: one whose disk was no good a moment ago
// is better than this one.
func (n *Node) leadsBetter(host uint64) int {
	switch {
	case !n.host.Clocks().Agrees(host):
	case !n.host.PeerLeaderAverse(host):
		return 2
	case n.host.PeerRecovering(host):
		return 1
	}
	return 0
}

func (n *Node) diskTrouble() diskTrouble {
	if n.host.Log().Writing() < n.config.electionTimeout() {
		n.disk.stalledTicks = 0
	} else if n.disk.stalledTicks++; n.disk.stalledTicks >= stallTicks {
		return diskStandsStill
	}
	if n.base.DiskFull() {
		return diskHasNoRoom
	}
	if slow, _ := n.host.DiskSlow(); slow {
		return diskIsSlow
	}
	return diskGood
}
