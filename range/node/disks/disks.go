package disks

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
	"github.com/tidemarkdb/tidemark/range/node/leadership"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// stallTicks is the number of consecutive ticks that must find the log standing still: a
	// process that was stopped finds such a write once when it continues.
	stallTicks = 2
	// averseFor is the number of election timeouts for which a node does not want to lead after its
	// disk was full or stalled, so that leaderships do not go back and forth with a disk that is
	// full every other moment.
	averseFor = 10
	// slowKeepsFor is the number of election timeouts for which a node with a slow disk keeps a
	// leadership that it has got. It gets one only where no other replica can lead, or because the
	// core has ordered it to change the replicas; the core's next step must find it there.
	slowKeepsFor = 5
	// A follower without room still fills one part in spareRoom of the reserve with entries under
	// way.
	spareRoom = 4
	// reserveParts is the number of parts into which the reserve is divided for shares
	// (group.Share).
	reserveParts = 16
	// wakingsPerCheck bounds the sleeping groups that a node with a slow disk wakes in a tick to
	// hand them over.
	wakingsPerCheck = 20
	// nearReserves is the free space, in reserves, below which entries under way count.
	nearReserves = 16
)

// Disks decides whether a node's disks are good enough to lead. A leader whose log cannot be
// written answers nothing, and a leader without room refuses writes, while its followers could
// serve. So the node hands over to nodes that say in their pings that they are better off. If there
// are none, it keeps its leaderships: with a full disk, reads are served.
type Disks struct {
	node      *hosted.Node
	transfers *leadership.Transfers
	// tick and electionTimeout are those of the node's groups.
	tick, electionTimeout time.Duration

	// Only the goroutine that calls Tick uses the following fields. stalledTicks counts the
	// consecutive ticks that have found the log standing still.
	stalledTicks int
	// yielding is the time (Node.now) until which a leadership is not given away again.
	yielding map[*hosted.Replica]int64
	// averseUntil is the time (Node.now) until which this node leaves leaderships to others.
	averseUntil int64
	trouble     trouble

	// share is the smallest share of the reserve that may be used, a group.Share.
	share atomic.Uint32
}

// New makes Disks.
func New(n *hosted.Node, t *leadership.Transfers, tick, electionTimeout time.Duration) *Disks {
	return &Disks{node: n, transfers: t, tick: tick, electionTimeout: electionTimeout,
		yielding: make(map[*hosted.Replica]int64)}
}

// sharedReserve says for each share how many parts of the reserve its entries leave (kept), and how
// many must be free for the node to announce that it takes them (least). Between the two is room
// for entries that are under way when it no longer announces it.
var sharedReserve = [group.Shares]struct{ kept, least int64 }{
	group.NoShare:         {kept: reserveParts - reserveParts/spareRoom},
	group.DeletionShare:   {kept: 7, least: 8},
	group.CollectionShare: {kept: 5, least: 6},
}

// underWayKept is the number of parts of the reserve that entries of data leave that leaders
// proposed before a quorum ran out of room (host.Room.UnderWay). A part more than deletions need
// stays, whatever the entries are: a node that has taken all of them still announces deletions.
const underWayKept = 9

// trouble is the state of the disks.
type trouble int

const (
	good trouble = iota
	// slow: other nodes would lead better, but this one leads well enough if they cannot.
	slow
	noRoom
	standsStill
)

// Tick checks the disks. It is called with every tick.
func (d *Disks) Tick() {
	n, now := d.node, d.node.Now()
	room := d.roomForEntries()
	room.None = n.DiskFull()
	d.share.Store(uint32(room.Takes))
	n.Host.SetRoom(room)
	trouble := d.look()
	able := trouble <= slow
	if !able {
		d.averseUntil = now + averseFor*int64(d.electionTimeout)
	}
	fit := n.Health.Fit()
	n.Host.SetLeaderAverse(trouble != good || now < d.averseUntil || !fit, able && fit)
	if was := d.trouble; trouble != was {
		d.trouble = trouble
		if was <= slow {
			n.Host.PingNow() // before anything is handed over, so that nothing is handed back
		}
		switch {
		case trouble == standsStill:
			n.Logger.Warn("the Raft log cannot be written; leaderships go to other nodes", "for",
				n.Host.Log().Writing().Round(time.Millisecond))
		case was == standsStill:
			n.Logger.Info("the Raft log can be written again")
		}
	}
	if trouble == good || !fit {
		return
	}
	rank, lag := d.leadsBetter, uint64(host.AnyLag)
	if able {
		// There is time to wait for a follower that lags.
		rank, lag = d.leadsWell, host.NearlyAll
	}
	budget, wakings := leadership.MaxAbdications, wakingsPerCheck
	maps.DeleteFunc(d.yielding, func(_ *hosted.Replica, until int64) bool { return now >= until })
	for _, h := range n.Leaders.Led() {
		if budget == 0 {
			return
		}
		// A sleeping group waits for no disk. A leadership that was given away and is still here
		// waits for the end of the transfer.
		asleep := !h.Group.Awake()
		if (trouble == standsStill && asleep) || now < d.yielding[h] ||
			(able && now < h.LedSince.Load()+slowKeepsFor*int64(d.electionTimeout)) {
			continue
		}
		if able && asleep {
			// The progress of its followers is as old as its sleep. It is handed over at a later
			// tick.
			if wakings > 0 && n.Host.Awake() < leadership.BusyGroups && d.betterFor(h) {
				wakings--
				h.Group.Wake()
			}
			continue
		}
		// One tick after Raft's leader checks, at the same intervals, which followers are active.
		d.yielding[h] = now + int64(d.electionTimeout+d.tick)
		budget--
		d.transfers.GiveAway(h, rank, lag, h.Replica.Writes().TransferLeader)
	}
}

// betterFor reports whether a partition has a replica on a node that would lead well.
func (d *Disks) betterFor(h *hosted.Replica) bool {
	n := d.node
	members := h.Replica.Configuration()
	return slices.ContainsFunc(members.Members, func(m group.Member) bool {
		return m.Host != uint64(n.ID) && members.Electable(m.Replica) &&
			!n.Host.Peers().Down(m.Host) && d.leadsWell(m.Host) > 0
	})
}

// Share returns the smallest share of the reserve whose entries may be proposed on a full disk.
func (d *Disks) Share() group.Share { return group.Share(d.share.Load()) }

// roomForEntries returns how much of the disk entries may take, and notes whether the reserve is
// short. Both databases are on one disk, and what either has yet to write counts for both:
// memtables, and entries in the logs that are to be applied.
//
// The free space is what the databases have seen: this goroutine must not wait for a disk that
// stands still.
func (d *Disks) roomForEntries() (room host.Room) {
	n, log, state := d.node, d.node.Log, d.node.State
	reserve := int64(log.MinFreeBytes())
	seen := log.FreeBytes()
	if state.FreeAt() > log.FreeAt() {
		seen = state.FreeBytes()
	}
	free := int64(min(seen, math.MaxInt64))
	left := free - log.UnflushedBytes() - state.UnflushedBytes()
	full := log.Full() || state.Full()
	if reserve == 0 || free == 0 || left/nearReserves >= reserve {
		n.DiskShort.Store(false)
		if !full {
			for share := range room.Bytes {
				room.Bytes[share] = host.Unbounded
			}
			room.UnderWay = host.Unbounded
		}
		return room
	}
	left -= n.Host.UnappliedBytes()
	n.DiskShort.Store(left < reserve)
	// A compaction can be cancelled: its space counts as free for work that makes room.
	left += log.ScratchBytes() + state.ScratchBytes()
	usable := left
	if full { // perhaps by a quota that the free space does not show
		usable = min(usable, reserve)
	}
	for share, of := range sharedReserve {
		room.Bytes[share] = usable - reserve/reserveParts*of.kept
	}
	room.UnderWay = usable - reserve/reserveParts*underWayKept
	for share := group.CollectionShare; share > group.NoShare; share-- {
		if least := reserve / reserveParts * sharedReserve[share].least; left >= least &&
			!log.Waits() && !state.Waits() {
			room.Takes = share
		}
	}
	return room
}

// leadsWell ranks hosts for a node whose disk is slow: a host that does not want to lead is no
// better, and a host that is being removed must not lead.
func (d *Disks) leadsWell(host uint64) int {
	n := d.node
	if n.Host.Clocks().Agrees(host) && !n.Host.Peers().LeaderAverse(host) &&
		n.Table.Load().Node(keys.NodeID(host)).GetStatus() == clusterpb.NodeStatus_NODE_ACTIVE {
		return 1
	}
	return 0
}

// leadsBetter ranks hosts for a node whose disk cannot be used: a host whose disk has recovered a
// moment ago is better than this one.
func (d *Disks) leadsBetter(host uint64) int {
	n := d.node
	switch {
	case !n.Host.Clocks().Agrees(host):
	case !n.Host.Peers().LeaderAverse(host):
		return 2
	case n.Host.Peers().Recovering(host):
		return 1
	}
	return 0
}

func (d *Disks) look() trouble {
	n := d.node
	if n.Host.Log().Writing() < d.electionTimeout {
		d.stalledTicks = 0
	} else if d.stalledTicks++; d.stalledTicks >= stallTicks {
		return standsStill
	}
	if n.DiskFull() {
		return noRoom
	}
	if isSlow, _ := n.Host.DiskSlow(); isSlow {
		return slow
	}
	return good
}
