package planner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// growing is a cluster with one keyspace that begins as one partition, whose keys are growBuckets
// numbers. What is written and read of each is known, and reported as nodes report it.
type growing struct {
	*world
	random *rand.Rand
	began  time.Time
	// bytes and load, in cores, are of each key.
	bytes, load []float64
	// end is how many keys there are; ascending is how much of the load is writes at the end.
	end       int
	ascending bool
	parts     map[keys.PartitionID]*grown
	running   []*running

	splits, merges, transfers map[planner.Cause]int
	// born counts how often each boundary came to be.
	born       map[int]int
	moves      map[keys.PartitionID]int
	lastChange time.Time
	ledEnds    map[keys.NodeID]bool
	largest    float64
}

// grown is a partition as its leader sees it.
type grown struct {
	from, to int
	// loads are those of the last ticks, the newest first, since it began to measure.
	loads []float64
	since time.Time
}

const (
	growBuckets = 1 << 13
	growSplit   = 256 << 20
)

func newGrowing(t *testing.T) *growing {
	g := &growing{world: newWorld(t, planner.Settings{Merges: true, LeastBytes: 512 << 20}),
		random: rand.New(rand.NewPCG(*daySeed, 9)), bytes: make([]float64, growBuckets),
		load: make([]float64, growBuckets), end: growBuckets / 2, parts: map[keys.PartitionID]*grown{},
		splits: map[planner.Cause]int{}, merges: map[planner.Cause]int{},
		transfers: map[planner.Cause]int{},
		born:      map[int]int{}, moves: map[keys.PartitionID]int{}, ledEnds: map[keys.NodeID]bool{}}
	g.began = g.now
	for i := range 8 {
		g.must(g.setNode(planner.Node{ID: keys.NodeID(i + 1), Zone: fmt.Sprint("z", i%4), Alive: true,
			Since: g.now.Add(-time.Hour), DiskCapacity: 128 << 30, Processors: 8 * planner.Core}))
	}
	g.must(g.setKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}))
	g.must(g.setPartition(planner.Partition{ID: 100, Keyspace: 1, Epoch: planner.Epoch{1, 1},
		Leader: 1, Wanted: 1, Replicas: []planner.Replica{{Node: 1}, {Node: 2}, {Node: 3}}}))
	g.parts[100] = &grown{to: growBuckets, since: g.now}
	return g
}

// pass lets time pass; each tick grows what is written.
func (g *growing) pass(span time.Duration, tick func()) {
	for range span / daySteps {
		g.now = g.now.Add(daySteps)
		if tick != nil {
			tick()
		}
		g.finishDue()
		g.report()
		for _, op := range g.step().Operators {
			g.note(op)
			took := 10*time.Second + time.Duration(op.Bytes/(dayRate>>10))*time.Second>>10
			g.running = append(g.running, &running{Operator: op, until: g.now.Add(took)})
			g.lastChange = g.now
		}
	}
}

func (g *growing) note(op planner.Operator) {
	switch op.Kind {
	case planner.Split:
		g.splits[op.Reason.Cause]++
	case planner.Merge:
		g.merges[op.Reason.Cause]++
	default:
		if op.Reason.Cause == planner.NewTail {
			g.ledEnds[op.Lead] = true
		}
		if op.Kind == planner.Replace && op.Reason.Cause >= planner.DiskFilling {
			g.moves[op.Partition]++
		}
		g.transfers[op.Reason.Cause]++
	}
}

// finishDue ends the operators whose time has come.
func (g *growing) finishDue() {
	var left []*running
	for _, r := range g.running {
		if g.now.Before(r.until) {
			left = append(left, r)
			continue
		}
		g.inFlight = slices.DeleteFunc(g.inFlight, func(f planner.InFlight) bool {
			return f.Partition == r.Partition
		})
		p := g.parts[r.Partition]
		switch r.Kind {
		case planner.Split:
			at, err := strconv.Atoi(string(r.Key))
			g.must(err)
			if at <= p.from || at >= p.to {
				g.t.Fatalf("%s: it has %d to %d", r.Title(), p.from, p.to)
			}
			g.born[at]++
			child := g.world.split(r.Operator)
			g.parts[child] = &grown{from: at, to: p.to, since: g.now}
			p.to, p.loads, p.since = at, nil, g.now
		case planner.Merge:
			q := g.parts[r.Right]
			if p.to != q.from {
				g.t.Fatalf("%s: %+v and %+v are no neighbours", r.Title(), p, q)
			}
			delete(g.parts, r.Right)
			g.world.merge(r.Operator)
			p.to, p.loads, p.since = q.to, nil, g.now
		default:
			g.finish(r.Operator)
			if r.Lead != 0 {
				p.loads, p.since = nil, g.now
			}
		}
	}
	g.running = left
}

// report has leaders report.
func (g *growing) report() {
	g.largest = 0
	for _, id := range slices.Sorted(maps.Keys(g.parts)) {
		at, p := g.parts[id], g.partitions[id]
		bytes, load := 0.0, 0.0
		for i := at.from; i < at.to; i++ {
			bytes += g.bytes[i]
			load += g.load[i]
		}
		g.largest = max(g.largest, bytes)
		ends := at.from < g.end && g.end <= at.to
		load *= 0.95 + 0.1*g.random.Float64()
		at.loads = append([]float64{load}, at.loads[:min(len(at.loads), 59)]...)
		p.Measured = g.now.Sub(at.since)
		p.Bytes = int64(bytes)
		p.LeaderLoad = planner.Cores(mean(at.loads[:min(6, len(at.loads))]) * float64(planner.Core))
		p.FollowerLoad = p.LeaderLoad / 4
		p.Growth = planner.Growth{Peak: planner.Cores(slices.Max(at.loads) * float64(planner.Core))}
		if len(at.loads) >= 6 {
			p.Growth.Sustained = planner.Cores(slices.Min(at.loads[:6]) * float64(planner.Core))
		}
		if ends && g.ascending {
			p.Growth.Ascending = 950
		}
		if load > 0.1 && len(at.loads) >= 4 {
			g.pointsByLoad(at, load, &p, ends)
		}
		if bytes > growSplit*7/8 {
			part := 0.5
			if p.Growth.Ascending > 0 {
				part = 0.875
			}
			p.Growth.BySize = g.divide(at, g.bytes, bytes, part)
		}
		g.must(g.setPartition(p))
	}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// divide finds the key with the nearest to a part of a sum left of it.
func (g *growing) divide(at *grown, of []float64, sum, part float64) *planner.SplitPoint {
	left, best := 0.0, (*planner.SplitPoint)(nil)
	for i := at.from; i < at.to; i++ {
		l := int(1000 * left / sum)
		far := func(l int) int { return max(l-int(1000*part), int(1000*part)-l) }
		if i > at.from && (best == nil || far(l) < far(best.Left)) {
			best = &planner.SplitPoint{Key: planner.Key(strconv.Itoa(i)), Left: l, Right: 1000 - l}
		}
		left += of[i]
	}
	return best
}

func (g *growing) pointsByLoad(at *grown, load float64, p *planner.Partition, ends bool) {
	sum, hot := 0.0, at.from
	for i := at.from; i < at.to; i++ {
		sum += g.load[i]
		if g.load[i] > g.load[hot] {
			hot = i
		}
	}
	if ends && g.ascending {
		// All that comes is right of every key that there is.
		key := planner.Key(strconv.Itoa(max(at.from+1, g.end-1)))
		p.Growth.ByLoad = &planner.SplitPoint{Key: key, Right: 1000}
		return
	}
	p.Growth.ByLoad = g.divide(at, g.load, sum, 0.5)
	if part := int(1000 * g.load[hot] / sum); part >= 100 {
		p.Growth.Hot, p.Growth.HotKey = part, planner.Key(strconv.Itoa(hot))
	}
}

// calm checks that nothing has happened for a time.
func (g *growing) calm(what string, span time.Duration) {
	g.t.Helper()
	if since := g.now.Sub(g.lastChange); since < span {
		g.t.Errorf("%s: something was proposed %s ago, want nothing for %s", what, since, span)
	}
}

func (g *growing) total() (splits, merges int) {
	for _, n := range g.splits {
		splits += n
	}
	for _, n := range g.merges {
		merges += n
	}
	return splits, merges
}

// A day in which a keyspace grows from one partition, has hot spots and a hot key, is appended to,
// and shrinks: it splits, spreads and merges, with no more splits than are of use, and nothing
// bounces.
func TestGrowingDay(t *testing.T) {
	g := newGrowing(t)
	half := growBuckets / 2
	// 20 GB, written at random in two hours.
	g.pass(2*time.Hour, func() {
		for i := range half {
			g.bytes[i] += 20 << 30 / float64(half) / 720
			g.load[i] = 0.4 / float64(half)
		}
		if g.largest > 1.25*growSplit {
			t.Errorf("%s: %.0f MiB in one partition", g.now.Sub(g.began), g.largest/(1<<20))
		}
	})
	clear(g.load)
	grown, _ := g.total()
	t.Logf("20 GiB: %d partitions, %d splits", len(g.parts), grown)
	if n := len(g.parts); n < 80 || n > 260 {
		t.Errorf("%d partitions of 20 GiB", n)
	}
	g.pass(2*time.Hour, nil)
	g.calm("full", time.Hour)

	// Four cores on a fiftieth of the keys.
	for i := range half / 50 {
		g.load[1000+i] = 4.0 / float64(half/50)
	}
	g.pass(90*time.Minute, nil)
	busy, _ := g.total()
	for _, id := range slices.Sorted(maps.Keys(g.parts)) {
		if load := g.partitions[id].LeaderLoad; load > planner.Core*27/100 {
			t.Errorf("a hot spot: %s costs %s", id, load)
		}
	}
	for i := range g.state.Nodes {
		if e := g.objective.OutsideAt(planner.LevelLoad, uint16(i), 0); e > 0 {
			t.Errorf("a hot spot: %s has %s of its share of load", g.state.NodeID(uint16(i)),
				words.Percent(g.objective.Deviation(planner.ByLoad, uint16(i), 0)))
		}
	}
	t.Logf("a hot spot of 4 cores: %d splits by load", busy-grown)
	if busy-grown < 15 || busy-grown > 40 {
		t.Errorf("%d splits for a hot spot of 4 cores", busy-grown)
	}
	g.calm("a hot spot", 30*time.Minute)

	// One hot key. It is parted from the rest, and that is all.
	clear(g.load)
	g.load[3000] = 0.8
	for i := range 8 {
		g.load[2999-i], g.load[3001+i] = 0.06, 0.06
	}
	g.pass(2*time.Hour, nil)
	hot, _ := g.total()
	t.Logf("a hot key: %d splits", hot-busy)
	if hot-busy < 1 || hot-busy > 4 {
		t.Errorf("%d splits for a hot key", hot-busy)
	}
	g.calm("a hot key", time.Hour)

	// Ascending keys: 6 GiB in two hours, and 0.8 cores.
	clear(g.load)
	g.ascending = true
	g.pass(2*time.Hour, func() {
		for range 4 {
			clear(g.load[max(0, g.end-8):g.end])
			g.bytes[g.end] += 6 << 30 / 720 / 4
			g.end++
			for i := range 8 {
				g.load[g.end-1-i] = 0.1
			}
		}
	})
	ascending, _ := g.total()
	t.Logf("6 GiB at the end: %d splits, ends were placed on %d nodes, %d times", ascending-hot,
		len(g.ledEnds), g.transfers[planner.NewTail])
	if n := ascending - hot; n < 20 || n > 45 {
		t.Errorf("%d splits for 6 GiB of ascending keys", n)
	}
	if n := g.transfers[planner.NewTail]; len(g.ledEnds) < 2 || n < (ascending-hot)*3/4 {
		t.Errorf("%d new ends were placed, on %d nodes", n, len(g.ledEnds))
	}
	g.ascending = false
	clear(g.load)

	// Nearly all is deleted.
	for i := range g.bytes {
		g.bytes[i] *= 0.02
	}
	before := len(g.parts)
	g.pass(10*time.Hour, nil)
	splits, merges := g.total()
	t.Logf("deleted: %d partitions, then %d; %d merges, %d moves for them", before, len(g.parts),
		merges, g.transfers[planner.Misaligned])
	if len(g.parts) > 20 {
		t.Errorf("%d partitions of 0.5 GiB, there were %d", len(g.parts), before)
	}
	if splits != ascending {
		t.Errorf("%d splits after everything was deleted", splits-ascending)
	}
	g.calm("deleted", time.Hour)
	for at, n := range g.born {
		if n > 1 {
			t.Errorf("it was split at %d %d times", at, n)
		}
	}
	for id, n := range g.moves {
		if n > 10 {
			t.Errorf("%s was moved %d times for balance", id, n)
		}
	}
	// What is left is split again only when it grows.
	g.pass(time.Hour, func() {
		for i := range half {
			g.bytes[i] += 2 << 30 / float64(half) / 360
		}
	})
	again, _ := g.total()
	if again == splits {
		t.Error("2 GiB more, and nothing splits")
	}
}
