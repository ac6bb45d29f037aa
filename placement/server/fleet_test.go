package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// fleet is data nodes that have no data: they send heartbeats, and carry out orders on the
// descriptors of partitions as their leaders would.
type fleet struct {
	t      *testing.T
	core   *core
	client *coreclient.Client

	mu    sync.Mutex
	nodes map[uint64]*fleetNode
	parts map[uint64]*fleetPartition
	// copying is how long a learner takes to catch up.
	copying time.Duration
	// reporting is that of the partitions that split next.
	reporting splitReporting
	merging   merging
	weather   *weather
	// obstructed, if not nil, says why a leader does not carry an order out, and whether it has tried.
	obstructed func(*clusterpb.Order) (why string, failed bool)
	// staying: leaders do not hand over.
	staying bool
	// news: the nodes report a leadership once, unless they are asked for everything.
	news bool
}

type fleetNode struct {
	id, server uint64
	broken     []uint64
	full       bool // it sends everything
	// slowDisk and fullDisk are what it reports of its disk.
	slowDisk, fullDisk bool

	reported map[uint64]uint64
	stop     func()
	// refused is what the last heartbeat was refused with.
	refused error
}

// fleetPartition is a partition as it is, whatever the core believes.
type fleetPartition struct {
	d      *clusterpb.Partition
	leader uint64 // node
	term   uint64
	bytes  uint64
	load   uint64
	// usedIDs are replica ids that were ever given out.
	usedIDs map[uint64]bool
	// changed is when the replicas last did.
	changed time.Time
	// split is when it last did, and reporting how its leader tells of that. One that split off is
	// not reported by its own leader before mute.
	split, mute time.Time
	reporting   splitReporting
	// waits says why the last order was not carried out, operator whose it was, and failures how often
	// that failed.
	waits    string
	operator uint64
	failures uint32
	// attempt is that to consume its right neighbour.
	attempt *consumption
}

// splitReporting is how late leaders tell of a split: after unsettled the parent's describes its
// partition, after whole it names what split off, and after done it does not any more; after mute
// the child's tells of itself.
type splitReporting struct{ unsettled, whole, done, mute time.Duration }

func newFleet(t *testing.T, c *core, client *coreclient.Client) *fleet {
	return &fleet{t: t, core: c, client: client, nodes: map[uint64]*fleetNode{},
		parts: map[uint64]*fleetPartition{}, merging: merging{consumed: map[uint64]bool{}}}
}

// add starts a node in a zone.
func (f *fleet) add(zone string) uint64 {
	f.t.Helper()
	f.mu.Lock()
	server := uint64(1000 + len(f.nodes))
	f.mu.Unlock()
	return f.register(server, fmt.Sprintf("node%d:1", server), zone)
}

func (f *fleet) register(server uint64, address, zone string) uint64 {
	f.t.Helper()
	r, err := f.client.Register(f.t.Context(), &clusterpb.RegisterNodeRequest{Server: server,
		Address: address, Locality: &clusterpb.Locality{Zone: zone}})
	if err != nil {
		f.t.Fatalf("register %s: %v", address, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &fleetNode{id: r.Node, server: server}
	f.nodes[r.Node] = n
	f.startLocked(n)
	return r.Node
}

func (f *fleet) startLocked(n *fleetNode) {
	ctx, cancel := context.WithCancel(f.t.Context())
	n.reported, n.full = map[uint64]uint64{}, true
	var beating sync.WaitGroup
	beating.Go(func() {
		for ctx.Err() == nil {
			f.beat(ctx, n)
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second): // virtual
			}
		}
	})
	n.stop = func() { cancel(); beating.Wait() }
}

// kill stops a node; its partitions elect other leaders.
func (f *fleet) kill(id uint64) {
	f.mu.Lock()
	n := f.nodes[id]
	stop := n.stop
	n.stop = nil
	f.mu.Unlock()
	stop()
}

func (f *fleet) restart(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.startLocked(f.nodes[id])
}

func (f *fleet) close() {
	f.mu.Lock()
	var stops []func()
	for _, n := range f.nodes {
		if n.stop != nil {
			stops = append(stops, n.stop)
		}
	}
	f.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// create makes a keyspace, and its partitions in the fleet.
func (f *fleet) create(r *clusterpb.CreateKeyspaceRequest) {
	f.t.Helper()
	create(f.t, f.core, f.client, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, info := range partitionsIn(f.t, f.client, r.Name) {
		p := &fleetPartition{d: proto.Clone(info.Partition).(*clusterpb.Partition), term: 1,
			bytes: 64 << 20, usedIDs: map[uint64]bool{}}
		for _, replica := range p.d.Replicas {
			p.usedIDs[replica.Replica] = true
		}
		p.leader = p.d.Replicas[0].Node
		f.parts[p.d.Id] = p
	}
}

func (f *fleet) aliveLocked(node uint64) bool {
	n := f.nodes[node]
	return n != nil && n.stop != nil
}

// answersLocked says whether a replica takes part.
func (f *fleet) answersLocked(p *fleetPartition, r *clusterpb.Replica) bool {
	return f.aliveLocked(r.Node) && !slices.Contains(f.nodes[r.Node].broken, p.d.Id)
}

// electLocked gives a partition another leader if its own is gone and a quorum answers.
func (f *fleet) electLocked(p *fleetPartition) {
	at := steps.ReplicaAt(p.d, keys.NodeID(p.leader))
	if at != nil && at.Role != clusterpb.ReplicaRole_LEARNER && f.answersLocked(p, at) {
		return
	}
	p.leader = 0
	members := group.ConfigurationOf(p.d)
	if !members.Quorum(func(id keys.ReplicaID) bool {
		return f.answersLocked(p, steps.ReplicaOf(p.d, uint64(id)))
	}) {
		return
	}
	for _, r := range p.d.Replicas {
		if r.Role != clusterpb.ReplicaRole_LEARNER && f.answersLocked(p, r) {
			p.leader = r.Node
			p.term++
			return
		}
	}
}

// report has a node report a slow or a full disk, and waits until the core has heard of it.
func (f *fleet) report(node uint64, reported *clusterpb.NodeStats) {
	f.mu.Lock()
	f.nodes[node].slowDisk, f.nodes[node].fullDisk = reported.DiskSlow, reported.DiskFull
	f.mu.Unlock()
	time.Sleep(time.Minute) // virtual
}

// beat is one heartbeat: what the node leads, how its disk is, and what is to be done about it.
func (f *fleet) beat(ctx context.Context, n *fleetNode) {
	h := &clusterpb.HeartbeatRequest{Cluster: testCluster, Node: n.id, Server: n.server,
		Stats: &clusterpb.NodeStats{DiskFreeBytes: 1 << 40, ProcessorsMicro: 4_000_000}}
	f.mu.Lock()
	h.Stats.DiskSlow, h.Stats.DiskFull = n.slowDisk, n.fullDisk
	f.advanceMergesLocked()
	n.broken = slices.DeleteFunc(n.broken, func(id uint64) bool {
		// it was destroyed
		return f.parts[id] == nil || steps.ReplicaAt(f.parts[id].d, keys.NodeID(n.id)) == nil
	})
	h.Stats.Broken = slices.Clone(n.broken)
	h.Full, n.full = n.full, false
	for id, p := range f.parts {
		f.electLocked(p)
		for _, r := range p.d.Replicas {
			if r.Node == n.id {
				h.Stats.Replicas++
				h.Stats.DiskUsedBytes += p.bytes
			}
		}
		if time.Now().Before(p.mute) {
			continue
		}
		if p.leader != n.id {
			if n.reported[id] != 0 {
				h.Reports = append(h.Reports, &clusterpb.PartitionReport{Partition: id, Term: p.term,
					Lost: true})
				delete(n.reported, id)
			}
			continue
		}
		report := &clusterpb.PartitionReport{Partition: id, Term: p.term, Generation: p.d.Generation,
			Membership: p.d.Membership, SizeBytes: p.bytes, LeaderLoadMicro: p.load,
			FollowerLoadMicro: p.load / 4, MeasuredSeconds: 600, WaitsFor: p.waits,
			Operator: p.operator, Failures: p.failures}
		if p.d.Membership > group.FoundingMembership || p.d.Generation > 1 {
			report.Described = proto.Clone(p.d).(*clusterpb.Partition)
		}
		f.tellOfSplitLocked(p, report)
		if f.news && !h.Full && n.reported[id] == p.term && p.split.IsZero() {
			continue
		}
		h.Reports = append(h.Reports, report)
		n.reported[id] = p.term
	}
	h.Reports = append(h.Reports, f.ghostsLocked(n.id)...)
	slices.SortFunc(h.Reports, func(a, b *clusterpb.PartitionReport) int {
		return cmp.Compare(a.Partition, b.Partition)
	})
	f.mu.Unlock()
	r, err := f.client.Heartbeat(ctx, h)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.refused = err; err != nil {
		n.full = n.full || h.Full
		return
	}
	n.full = r.WantFull
	for _, o := range f.arrivingLocked(n.id, r.Orders) {
		f.carryOutLocked(n.id, o)
	}
}

// carryOutLocked does what a leader does with an order.
func (f *fleet) carryOutLocked(node uint64, o *clusterpb.Order) {
	p := f.parts[o.Target.Id]
	if p == nil || p.leader != node || f.obstructLocked(p, o) {
		return
	}
	if o.TransferTo != 0 && f.staying {
		return
	}
	if o.TransferTo != 0 {
		to := steps.ReplicaOf(p.d, o.TransferTo)
		if o.Target.Membership == p.d.Membership && to != nil && f.answersLocked(p, to) {
			p.leader = to.Node
			p.term++
		}
		return
	}
	if o.Consume != nil {
		f.consumeLocked(p, o)
		return
	}
	if p.d.Frozen != nil {
		return // it changes in no way until it thaws
	}
	if o.Child != nil {
		f.splitLocked(p, o)
		return
	}
	if o.Target.Generation != p.d.Generation || o.Target.Membership != p.d.Membership+1 {
		return
	}
	from, to := group.ConfigurationOf(p.d), group.ConfigurationOf(o.Target)
	if err := from.CanBecome(&to); err != nil && !from.Equal(&to) {
		f.t.Errorf("partition %d: an order that is refused: %v", p.d.Id, err)
		return
	}
	quorum := to.Quorum(func(id keys.ReplicaID) bool {
		return f.answersLocked(p, steps.ReplicaOf(o.Target, uint64(id)))
	})
	if !quorum && to.Joint() {
		return // it waits
	}
	for _, r := range o.Target.Replicas {
		before := steps.ReplicaOf(p.d, r.Replica)
		if r.Role == clusterpb.ReplicaRole_INCOMING &&
			before.GetRole() == clusterpb.ReplicaRole_LEARNER &&
			(!f.answersLocked(p, r) || time.Since(p.changed) < f.copying) {
			return // a newcomer that does not answer, or lacks something, does not come to vote
		}
	}
	for _, r := range o.Target.Replicas {
		if steps.ReplicaOf(p.d, r.Replica) == nil {
			if p.usedIDs[r.Replica] {
				f.t.Errorf("partition %d: replica id %d comes again", p.d.Id, r.Replica)
			}
			p.usedIDs[r.Replica] = true
		}
	}
	p.d, p.changed = proto.Clone(o.Target).(*clusterpb.Partition), time.Now()
}

// where are the nodes with a voter of each partition, as things are.
func (f *fleet) where() map[uint64][]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[uint64][]uint64{}
	for id, p := range f.parts {
		for _, r := range p.d.Replicas {
			if r.Role == clusterpb.ReplicaRole_VOTER {
				out[id] = append(out[id], r.Node)
			}
		}
		slices.Sort(out[id])
	}
	return out
}

// holds is how many replicas, of any role, each node has.
func (f *fleet) holds() map[uint64]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[uint64]int{}
	for _, p := range f.parts {
		for _, r := range p.d.Replicas {
			out[r.Node]++
		}
	}
	return out
}

// leads is how many partitions each node leads.
func (f *fleet) leads() map[uint64]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[uint64]int{}
	for _, p := range f.parts {
		out[p.leader]++
	}
	return out
}

// idle says whether the core has nothing under way.
func (f *fleet) idle() bool {
	r, err := f.client.ListOperators(f.t.Context(), &clusterpb.ListOperatorsRequest{})
	return err == nil && len(r.Operators) == 0
}

// await waits, in virtual time, for at most a while.
func (f *fleet) await(atMost time.Duration, what string, holds func() bool) {
	f.t.Helper()
	began := time.Now()
	for time.Since(began) < atMost {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(time.Second) // virtual
	}
	for id := range f.where() {
		if r, err := f.client.Why(f.t.Context(), &clusterpb.WhyRequest{Partition: id}); err != nil {
			f.t.Logf("why %d: %v", id, err)
		} else {
			f.t.Log(r.Text)
		}
	}
	f.t.Fatalf("after %s: %s; replicas %v, leaders %v", atMost, what, f.holds(), f.leads())
}

// sound says whether every partition has that many voters, on live nodes, and nothing else.
func (f *fleet) sound(factor int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.parts {
		if len(p.d.Replicas) != factor || p.leader == 0 {
			return false
		}
		for _, r := range p.d.Replicas {
			if r.Role != clusterpb.ReplicaRole_VOTER || !f.answersLocked(p, r) {
				return false
			}
		}
	}
	return true
}

// inFleet runs a test with a core of three and nodes in zones.
func inFleet(t *testing.T, zones []string, run func(*testing.T, *core, *fleet)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		f := newFleet(t, c, client)
		defer f.close()
		for _, zone := range zones {
			f.add(zone)
		}
		run(t, c, f)
	})
}

func events(t *testing.T, f *fleet) []*clusterpb.Event {
	t.Helper()
	r, err := f.client.ListEvents(t.Context(), &clusterpb.ListEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Events
}

func sameWhere(a, b map[uint64][]uint64) bool { return maps.EqualFunc(a, b, slices.Equal) }
