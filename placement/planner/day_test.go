package planner_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var (
	dayPartitions = flag.Int("day.partitions", 400, "partitions of the simulated cluster")
	dayNodes      = flag.Int("day.nodes", 4, "nodes in each of its four zones")
	daySeed       = flag.Uint64("day.seed", 1, "seed of the simulated day")
)

const (
	daySteps = 10 * time.Second
	// dayRate is what one snapshot sends, in bytes per second.
	dayRate = 32 << 20
	// dayZones is how many zones there are.
	dayZones = 4
)

// day is a virtual day of a cluster whose operators take time, with hot spots that move, nodes that
// die and come, a disk that fills up and a node that is decommissioned.
type day struct {
	*world
	random  *rand.Rand
	running []*running
	base    map[keys.PartitionID]float64 // load in cores while it is not hot
	hot     map[keys.PartitionID]bool
	seen    map[keys.PartitionID]float64 // average over a minute

	moved       map[planner.Cause]int64 // bytes, by cause
	operators   map[planner.Cause]int
	moves       map[keys.PartitionID]int // for balance, by partition
	least       int64                    // bytes that had to be moved at least
	failed      int
	uneven      [planner.Dimensions]time.Duration
	short       time.Duration // some partition was not fully replicated
	shortSince  time.Time
	longest     time.Duration
	lastProposd time.Time
	trace       func(planner.Operator)
}

// running is an operator that is being carried out.
type running struct {
	planner.Operator
	until time.Time
	// halfway: the learner is in the descriptor.
	halfway bool
}

func newDay(t *testing.T) *day {
	d := &day{world: newWorld(t, planner.Settings{LeastBytes: 512 << 20}),
		random: rand.New(rand.NewPCG(*daySeed, 7)), base: map[keys.PartitionID]float64{},
		hot: map[keys.PartitionID]bool{}, seen: map[keys.PartitionID]float64{},
		moved: map[planner.Cause]int64{}, operators: map[planner.Cause]int{},
		moves: map[keys.PartitionID]int{}}
	for i := range dayZones * *dayNodes {
		d.must(d.setNode(d.newNode(i)))
	}
	d.must(d.setKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}))
	for i := range *dayPartitions {
		p := planner.Partition{ID: keys.PartitionID(100 + i), Keyspace: 1, Epoch: planner.Epoch{1, 1},
			Bytes: 64<<20 + d.random.Int64N(192<<20), Measured: time.Hour}
		for r := range 3 {
			zone := (i + r) % dayZones
			p.Replicas = append(p.Replicas,
				planner.Replica{Node: keys.NodeID(1 + zone + dayZones*((i/dayZones+r)%*dayNodes))})
		}
		p.Leader, p.Wanted = p.Replicas[0].Node, p.Replicas[0].Node
		d.base[p.ID] = 0.01 + 0.02*d.random.Float64()
		d.must(d.setPartition(p))
	}
	return d
}

func (d *day) newNode(i int) planner.Node {
	return planner.Node{ID: keys.NodeID(i + 1), Region: "eu", Zone: fmt.Sprint("z", i%dayZones),
		Alive: true, Since: d.now.Add(-time.Hour), DiskCapacity: 128 << 30,
		Processors: 8 * planner.Core}
}

// change changes a node.
func (d *day) change(id keys.NodeID, f func(*planner.Node)) {
	n := d.nodes[id]
	f(&n)
	d.must(d.setNode(n))
}

func (d *day) kill(id keys.NodeID) {
	d.change(id, func(n *planner.Node) { n.Alive, n.Since = false, d.now })
}

func (d *day) revive(id keys.NodeID) {
	d.change(id, func(n *planner.Node) { n.Alive, n.Since = true, d.now })
}

// bytesOn is what is on a node by descriptors.
func (d *day) bytesOn(id keys.NodeID) int64 {
	var sum int64
	for _, p := range d.partitions {
		if slices.ContainsFunc(p.Replicas, func(r planner.Replica) bool { return r.Node == id }) {
			sum += p.Bytes
		}
	}
	return sum
}

// heat chooses other partitions to be hot.
func (d *day) heat(n int) {
	clear(d.hot)
	for len(d.hot) < n {
		d.hot[keys.PartitionID(100+d.random.IntN(*dayPartitions))] = true
	}
}

// run is the day; at each hour something happens.
func (d *day) run() {
	start := d.now
	total := int64(0)
	for _, p := range d.partitions {
		total += 3 * p.Bytes
	}
	share := total / int64(dayZones**dayNodes)
	hours := map[int]func(){
		1: func() { d.heat(*dayPartitions / 80) },
		// Away for less than the repair delay: nothing is to be moved.
		3: func() { d.kill(2) },
		4: func() { d.heat(*dayPartitions / 80) },
		// Away for good: all that was there is copied once.
		5: func() { d.least += d.bytesOn(3); d.kill(3) },
		7: func() { d.heat(*dayPartitions / 40) },
		// An empty node comes: filled up to where it is within what is tolerated.
		8: func() {
			d.least += share * 9 / 10
			d.must(d.setNode(d.newNode(dayZones * *dayNodes)))
			d.revive(keys.NodeID(dayZones**dayNodes + 1))
		},
		10: func() { d.heat(*dayPartitions / 80) },
		// Decommissioned: all that is there is copied once.
		11: func() {
			d.least += d.bytesOn(5)
			d.change(5, func(n *planner.Node) { n.Status = planner.Moving })
		},
		14: func() { d.heat(0) },
		// Something else fills a disk: what is beyond the mark has to go.
		15: func() {
			d.change(6, func(n *planner.Node) {
				n.DiskUsed = n.DiskCapacity * 85 / 100
				n.DiskUsed += 4 << 30
			})
			d.least += 4 << 30
		},
		17: func() { d.heat(*dayPartitions / 80) },
		19: func() { d.heat(0) },
	}
	for hour := range 24 {
		if event := hours[hour]; event != nil {
			event()
		}
		for step := range int(time.Hour / daySteps) {
			added := keys.NodeID(dayZones**dayNodes + 1)
			switch {
			case hour == 3 && step == 18:
				d.revive(2)
			case hour == 8 && step == 12:
				d.kill(added) // while it receives
			case hour == 8 && step == 20:
				d.revive(added)
			}
			d.tick()
			if d.now.Sub(start) > 22*time.Hour && d.lastProposd.After(start.Add(22*time.Hour)) {
				d.t.Fatalf("at %s something is proposed, three hours after the last change",
					d.now.Sub(start))
			}
		}
	}
}

// tick is one step: what runs goes on, loads are reported, the planner proposes.
func (d *day) tick() {
	d.now = d.now.Add(daySteps)
	d.lead()
	d.carryOut()
	d.reportLoads()
	for _, op := range d.step().Operators {
		d.operators[op.Reason.Cause]++
		if d.trace != nil {
			d.trace(op)
		}
		d.moved[op.Reason.Cause] += op.Bytes
		if op.Reason.Cause >= planner.DiskFilling && op.Bytes > 0 {
			d.moves[op.Partition]++
		}
		took := time.Second + time.Duration(op.Bytes/(dayRate>>10))*time.Second>>10
		d.running = append(d.running, &running{Operator: op, until: d.now.Add(took)})
		d.lastProposd = d.now
	}
	d.measure()
}

// lead has leaders on nodes that died replaced.
func (d *day) lead() {
	for _, id := range slices.Sorted(maps.Keys(d.partitions)) {
		p := d.partitions[id]
		if d.nodes[p.Leader].Alive {
			continue
		}
		for _, r := range p.Replicas {
			if r.Role == planner.Voter && d.nodes[r.Node].Alive {
				p.Leader, p.Measured = r.Node, 0
				d.must(d.setPartition(p))
				break
			}
		}
	}
}

// carryOut ends operators whose time has come, adds learners, and gives up what cannot go on.
func (d *day) carryOut() {
	var left []*running
	for _, r := range d.running {
		p := d.partitions[r.Partition]
		switch dead := r.Add != 0 && !d.nodes[r.Add].Alive; {
		case dead:
			d.failed++
			p.Ended = d.now
			d.must(d.setPartition(p))
		case !d.now.Before(r.until):
			if r.halfway { // the steps that are left count from here
				r.Steps = r.Steps[1:]
			}
			d.finish(r.Operator)
			if r.Lead != 0 {
				p := d.partitions[r.Partition]
				p.Measured = 0
				d.must(d.setPartition(p))
			}
		default:
			if r.Add != 0 && !r.halfway && r.Steps[0].Action == planner.AddLearner {
				r.halfway = true
				p.Replicas = append(slices.Clone(p.Replicas),
					planner.Replica{Node: r.Add, Role: planner.Learner})
				p.Epoch.Membership++
				d.must(d.setPartition(p))
			}
			left = append(left, r)
			continue
		}
		d.inFlight = slices.DeleteFunc(d.inFlight, func(f planner.InFlight) bool {
			return f.Partition == r.Partition
		})
	}
	d.running = left
}

// reportLoads reports averages over a minute of loads that waver.
func (d *day) reportLoads() {
	for _, id := range slices.Sorted(maps.Keys(d.partitions)) {
		p := d.partitions[id]
		load := d.base[id]
		if d.hot[id] {
			load += 0.8
		}
		load *= 0.95 + 0.1*d.random.Float64()
		before := d.seen[id]
		d.seen[id] = before + (load-before)/6
		p.Measured += daySteps
		if now := planner.Cores(d.seen[id] * float64(planner.Core)); farFrom(now, p.LeaderLoad) {
			p.LeaderLoad, p.FollowerLoad = now, now/4
			d.must(d.setPartition(p))
		} else {
			d.partitions[id] = p
		}
	}
}

// farFrom: nodes report what changed by more than a tenth.
func farFrom(now, reported planner.Cores) bool {
	return now > reported*11/10 || now < reported*9/10
}

func (d *day) measure() {
	s := d.state
	for dim := range planner.Dimensions {
		for i := range s.Nodes {
			e := d.objective.OutsideAt(dim.Level(), uint16(i), 0)
			// Too little load is no harm.
			if s.Nodes[i].Condition.Is(state.Open) && (e > 0 || e < 0 && dim != planner.ByLoad) {
				d.uneven[dim] += daySteps
				break
			}
		}
	}
	short := false
	for i := range s.Partitions {
		if x := d.objective.Inspect(&s.Partitions[i]); x.Good < 3 {
			short = true
		}
	}
	switch {
	case !short:
		d.shortSince = time.Time{}
	case d.shortSince.IsZero():
		d.shortSince = d.now
	}
	if short {
		d.short += daySteps
		d.longest = max(d.longest, d.now.Sub(d.shortSince))
	}
}

// A day in which much happens: what has to be moved is moved, little else, nothing twice within its
// pause, and in the end nothing moves.
func TestDay(t *testing.T) {
	d := newDay(t)
	began := time.Now()
	d.run()
	t.Logf("%d nodes, %d partitions, simulated in %s", len(d.nodes), len(d.partitions),
		time.Since(began).Round(time.Millisecond))
	var moved, forLoad int64
	for _, cause := range slices.Sorted(maps.Keys(d.operators)) {
		t.Logf("  %-22s %4d operators, %6d MiB", cause, d.operators[cause], d.moved[cause]>>20)
		moved += d.moved[cause]
		if cause == planner.LoadUneven {
			forLoad += d.moved[cause]
		}
	}
	t.Logf("moved %d MiB, of which %d for load; without load %d had to be moved at least",
		moved>>20, forLoad>>20, d.least>>20)
	t.Logf("out of balance: load %s, bytes %s, replicas %s, leaders %s of 24h",
		d.uneven[planner.ByLoad],
		d.uneven[planner.ByBytes], d.uneven[planner.ByCount], d.uneven[planner.ByLeaders])
	most := 0
	for _, n := range d.moves {
		most = max(most, n)
	}
	t.Logf("too few replicas for %s, at most %s at a time; %d operators failed; no partition was "+
		"moved for balance more than %d times", d.short, d.longest, d.failed, most)
	if rest := moved - forLoad; rest > d.least*3/2 {
		t.Errorf("moved %d MiB beside those for load, at least %d had to be", rest>>20,
			d.least>>20)
	}
	if d.longest > 15*time.Minute {
		t.Errorf("too few replicas for %s", d.longest)
	}
	if most > 8 {
		t.Errorf("one partition was moved %d times for balance", most)
	}
	if n := d.bytesOn(3) + d.bytesOn(5); n != 0 {
		t.Errorf("%d bytes are on nodes that are lost or decommissioned", n)
	}
	if len(d.running) != 0 || d.proposal.Waiting != 0 {
		t.Errorf("in the end %d operators run, %d partitions wait", len(d.running), d.proposal.Waiting)
	}
	for i := range d.state.Partitions {
		if x := d.objective.Inspect(&d.state.Partitions[i]); !x.Settled || x.Spread.Zones > 0 {
			t.Errorf("%s in the end: %+v", d.state.Partitions[i].ID, x)
		}
	}
	for l := planner.LevelRoom; l < planner.Levels; l++ {
		for i := range d.state.Nodes {
			n, open := uint16(i), d.state.Nodes[i].Condition.Is(state.Open)
			if open && d.objective.OutsideAt(l, n, 0) > 0 {
				t.Errorf("in the end %s of %s: %s of its share", l, d.state.NodeID(n),
					words.Percent(d.objective.Standing(l, n)))
			}
		}
	}
}
