package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
)

// shape has all decisions of a seed about the cluster and the load.
type shape struct {
	options kvtest.Options
	// workloads are made for one run. Without a pace they do about perSecond operations in a
	// second. perMinute is the number of operations that a run may do in a minute.
	workloads []driver.Workload
	perSecond float64
	perMinute float64
	// extras are further workloads. Faults do not affect the hosts of their clients.
	extras []driver.Workload
	tick   time.Duration
	// electionTicks is the shortest election timeout, in ticks.
	electionTicks int
	// hasty: the election timeout is shorter than the largest difference of clocks. So a leader can
	// serve timestamps that lie ahead of its successor's clock.
	hasty bool
	// wild: the checks of the workloads do not depend on clocks, so clocks may be beyond the bound.
	wild bool
	// alone: the workloads' keyspaces have one replica. Then replication does not carry timestamps
	// from one node to another, and other mechanisms have to keep the order among clocks that
	// differ. No server loses its disk.
	alone bool
	// epochs: leaders are cut off from the other servers but from no client, again and again, while
	// busy clients lock the keys that they read.
	epochs bool
	// members: data nodes are candidates for the core, and the schedule changes the core's members.
	members bool
	// transactions: the workloads have transactions.
	transactions bool
	// coordination: there are workloads of the coordination service.
	coordination bool
	// speeds are the speeds of the servers' monotonic clocks; 1 is true time.
	speeds []float64
}

// shapeOf draws the shape of a seed. With transactions, the cluster is the same and the workloads
// differ.
func shapeOf(seed uint64, transactions bool) *shape {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &shape{}
	o := kvtest.Options{Seed: random.Uint64() | 1, Latency: latency, Nodes: 3, Cores: 3}
	switch random.IntN(5) {
	case 0:
		o.Cores = 1
	case 1:
		o.Nodes, o.Separate = 4, true
	case 2:
		o.Nodes = 5
	}
	if more := rand.New(rand.NewPCG(seed, 9)).IntN(4); more < 2 && o.Nodes == 3 {
		o.Nodes += 1 + more // replicas can move only where there is a node without one
	}
	// The log is short and flushes are frequent, so that a follower needs a snapshot after an
	// absence of some seconds.
	retain, memTable := int64(16<<10)<<random.IntN(4), uint64(64<<10)<<random.IntN(3)
	sleepAfter := []time.Duration{time.Second, 3 * time.Second, -1}[random.IntN(3)]
	tick := []time.Duration{50, 50, 100, 100, 100, 100, 200, 200}[random.IntN(8)] * time.Millisecond
	electionTicks := 10
	if random.IntN(7) == 0 {
		tick, electionTicks, s.hasty = 50*time.Millisecond, 3, true
	}
	s.tick, s.electionTicks = tick, electionTicks
	queue := drawQueue(rand.New(rand.NewPCG(seed, 15)))
	o.Configure = func(_ int, c *embedded.ServerConfig) {
		c.Admission = queue
		c.RetainLogBytes, c.MemTableBytes, c.SleepAfter, c.Tick = retain, memTable, sleepAfter, tick
		c.ElectionTicks = electionTicks
		lively(c)
		if s.members && !slices.Contains(c.Roles, embedded.RoleCore) {
			c.Roles = append(c.Roles, embedded.RoleCore) // the server becomes a candidate for the core
		}
	}
	s.options = o
	for range 8 {
		s.speeds = append(s.speeds, 2-fastest+2*(fastest-1)*random.Float64())
	}
	s.wild = random.IntN(6) == 0
	s.mix(random)
	if transactions && seed%epochsEvery == epochsAt {
		s.epochs = true
		s.mixEpochs(rand.New(rand.NewPCG(seed, 5)))
	} else if transactions {
		s.mixTransactions(rand.New(rand.NewPCG(seed, 4)))
	}
	s.members = seed%membersEvery == 0 && !s.epochs && (o.Separate || o.Nodes > o.Cores)
	s.mixExtras(rand.New(rand.NewPCG(seed, 7)))
	s.mixReplicas(rand.New(rand.NewPCG(seed, 8)))
	s.mixFeeds(rand.New(rand.NewPCG(seed, 9)))
	s.mixCoordination(rand.New(rand.NewPCG(seed, 14)))
	s.mixBackups(seed)
	// Most seeds have few operations and some have many: the cost of a run is its operations.
	s.perMinute = []float64{200, 400, 500, 700, 700, 3000}[random.IntN(6)]
	if s.epochs {
		s.perMinute = 3000
	}
	return s
}

// drawQueue draws the configuration of each node's queue of requests. In a third of all shapes
// processors seem to be short half of the time. In the other shapes no request waits.
func drawQueue(random *rand.Rand) (c workqueue.Config) {
	if random.IntN(3) > 0 {
		return c
	}
	seed, looks := random.Uint64(), new(atomic.Uint64)
	c = workqueue.Config{Least: 1 + random.IntN(3), Most: 4 << random.IntN(5),
		MaxWaiting: 64 << random.IntN(6), Longest: 500 * time.Millisecond}
	c.Short = func() bool { return rand.New(rand.NewPCG(seed, looks.Add(1))).IntN(2) == 0 }
	return c
}

// withPriority gives the calls of one client in four a high priority, and the calls of another one
// a low priority. Priorities matter only where requests wait.
func withPriority(ctx context.Context, client int) context.Context {
	return kv.WithPriority(ctx, []kv.Priority{kv.PriorityNormal, kv.PriorityHigh, kv.PriorityNormal,
		kv.PriorityLow}[client%4])
}

// electionTimeout is the shortest time after which a follower campaigns.
func (s *shape) electionTimeout() time.Duration { return time.Duration(s.electionTicks) * s.tick }

// pace distributes the operations that a run may do: most of them in the storms.
func (s *shape) pace(schedule Schedule, began time.Duration) driver.Pace {
	// inFinale operations are additional: the finale does not share the budget.
	const inStorms, inFinale, steady = 0.85, 1000, 15
	var p driver.Pace
	stormy := time.Second
	for _, storm := range schedule.storms() {
		stormy += storm.Until - storm.From
		p.Storms = append(p.Storms, driver.Storm{From: began + storm.From, Until: began +
			storm.Until})
	}
	calm := max(schedule.Duration-stormy, time.Second)
	budget := s.perMinute * schedule.Duration.Minutes()
	p.BurstFactor = min(max(0.3, s.perSecond*stormy.Seconds()/(budget*inStorms)), 20)
	p.Steady = steady
	p.Finale = max(1, s.perSecond*finale.Seconds()/inFinale)
	p.Factor = max(4, s.perSecond*calm.Seconds()/(budget*(1-inStorms)))
	return p
}

// perSecond is about how many operations each of the standard workloads does in a second without a
// pace. mix does not draw workloads that are not in this table.
var perSecond = map[string]float64{
	"registers": 130, "sleepy": 2, "contended": 160, "counters": 80, "rings": 60, "slow-rings": 40,
	"batches": 50, "watched": 210, "past": 120,
	"sessions": 60, "lists": 60, "sets": 25, "hashed-sets": 25,

	"etcd-txns": 38, "etcd-watches": 14, "etcd-leases": 10, "etcd-locks": 20, "etcd-elections": 5,
	"etcd-timers": 3,
}

// transactional has the kinds of workloads with transactions. transactionsPerSecond is about how
// many operations each of them does in a second without a pace: without commit wait, and with
// commit wait.
var (
	transactional = []string{"bank", "increments", "duties", "inserts", "dependencies",
		"snapshots", "elders", "news"}
	transactionsPerSecond = map[string][2]float64{
		"bank": {48, 14}, "increments": {51, 18}, "duties": {48, 12}, "inserts": {75, 64},
		"dependencies": {85, 20}, "snapshots": {48, 17},
		"elders": {1, 1}, "news": {80, 35},
	}
)

// operationsPerSecond returns about how many operations a workload does in a second; 0 if unknown.
func operationsPerSecond(name string) float64 {
	if n := perSecond[name]; n != 0 {
		return n
	}
	for kind, n := range transactionsPerSecond {
		switch {
		case !strings.HasSuffix(name, kind):
		case strings.HasPrefix(name, "strict-"), strings.HasPrefix(name, "waiting-"):
			return n[1]
		default:
			return n[0]
		}
	}
	return 0
}

// timeless are the workloads whose checks do not depend on the servers' clocks.
var timeless = []string{"registers", "contended", "counters", "watched"}

// mix draws the workloads. A run has only two or three of them, so that each workload gets enough
// of the run's operations.
func (s *shape) mix(random *rand.Rand) {
	possible := slices.DeleteFunc(workloads.Standard(), func(w driver.Workload) bool {
		return perSecond[w.Name()] == 0 || s.wild && !slices.Contains(timeless, w.Name())
	})
	order := random.Perm(len(possible))
	if i := slices.IndexFunc(possible,
		func(w driver.Workload) bool { return w.Name() == "past" }); s.hasty && i >= 0 {
		order = append([]int{i}, slices.DeleteFunc(order, func(n int) bool { return n == i })...)
	}
	for _, i := range order[:2+random.IntN(2)] {
		s.workloads = append(s.workloads, possible[i])
		s.perSecond += perSecond[possible[i].Name()]
	}
	s.workloads = append(s.workloads, &bulk{pause: []time.Duration{500 * time.Millisecond,
		2 * time.Second}[random.IntN(2)]})
}

// mixTransactions replaces the drawn workloads by two transactional workloads of different kinds,
// over hash partitions or ranges, with or without commit wait. In half of the seeds a workload
// without transactions runs beside them. No transactional workload is excluded when clocks are
// wrong, because a node with a wrong clock does not serve.
func (s *shape) mixTransactions(random *rand.Rand) {
	s.transactions = true
	bulk := s.workloads[len(s.workloads)-1]
	s.workloads, s.perSecond = nil, 0
	possible := workloads.SDKTransactions()
	s.alone = random.IntN(3) == 0
	kinds := random.Perm(len(transactional))
	if duties := slices.Index(transactional, "duties"); s.alone && random.IntN(2) == 0 {
		// A write below the timestamp of a read refresh happens only if clocks differ, and only a
		// check for write skew notices it.
		kinds = append([]int{duties}, slices.DeleteFunc(kinds,
			func(n int) bool { return n == duties })...)
	}
	for _, kind := range kinds[:2] {
		var names []string
		for _, w := range possible {
			if strings.HasSuffix(w.Name(), transactional[kind]) {
				names = append(names, w.Name())
			}
		}
		s.add(possible, names[random.IntN(len(names))])
	}
	if random.IntN(2) == 0 {
		s.add(workloads.Standard(), timeless[random.IntN(len(timeless))])
	}
	s.workloads = append(s.workloads, bulk)
}

// mixExtras adds one more workload to most seeds: scans of everything, or transactions that read
// spans. It has its own random numbers, and the schedule does not depend on it, so that the rest of
// the seed stays the same.
func (s *shape) mixExtras(random *rand.Rand) {
	names := [][]string{{"backups"}, {"hashed-backups"}, {"spans", "ranged-spans"},
		nil}[random.IntN(4)]
	if len(names) == 0 || s.wild && !s.transactions {
		return
	}
	name := names[random.IntN(len(names))]
	all := workloads.Standard()
	s.extras = append(s.extras,
		all[slices.IndexFunc(all, func(w driver.Workload) bool { return w.Name() == name })])
}

// mixReplicas adds reads at any replica to half of the seeds.
func (s *shape) mixReplicas(random *rand.Rand) {
	if random.IntN(2) == 0 || s.wild && !s.transactions {
		return
	}
	name := []string{"replicas", "ranged-replicas"}[random.IntN(2)]
	all := workloads.Standard()
	s.extras = append(s.extras,
		all[slices.IndexFunc(all, func(w driver.Workload) bool { return w.Name() == name })])
}

// mixFeeds adds a change feed to most seeds.
func (s *shape) mixFeeds(random *rand.Rand) {
	names := []string{"feed", "ranged-feed", "forgetting-feed", ""}
	name := names[random.IntN(len(names))]
	if name == "" || s.wild && !s.transactions {
		return
	}
	all := workloads.Standard()
	s.extras = append(s.extras,
		all[slices.IndexFunc(all, func(w driver.Workload) bool { return w.Name() == name })])
}

// all returns the workloads and then the extras. So the host "client-1" of a fault is the first
// client of the workloads.
func (s *shape) all() []driver.Workload { return slices.Concat(s.workloads, s.extras) }

// A seed with transactions is about epochs if seed % epochsEvery == epochsAt.
const epochsEvery, epochsAt = 13, 5

// epochPartitions is the highest number of partitions that the workloads of mixEpochs have. These
// partitions have lower ids than all others.
const epochPartitions = 8

// mixEpochs makes the seed run transactions that read pending values under volatile locks:
// transactions without commit wait, whose values pass from one lock to the next before they are
// committed.
func (s *shape) mixEpochs(random *rand.Rand) {
	s.transactions = true
	bulk := s.workloads[len(s.workloads)-1]
	s.workloads, s.perSecond = nil, 0
	for _, names := range [][]string{{"bank", "ranged-bank"}, {"increments", "ranged-increments"}} {
		s.add(workloads.SDKTransactions(), names[random.IntN(len(names))])
	}
	s.workloads = append(s.workloads, bulk)
}

// add adds the possible workload with a name.
func (s *shape) add(possible []driver.Workload, name string) {
	i := slices.IndexFunc(possible, func(w driver.Workload) bool { return w.Name() == name })
	s.workloads = append(s.workloads, possible[i])
	s.perSecond += operationsPerSecond(name)
}

// choose replaces the workloads of the seed.
func (s *shape) choose(workloads []driver.Workload) {
	s.workloads, s.perSecond, s.extras, s.coordination = workloads, 1, nil, false
	for _, w := range workloads {
		s.coordination = s.coordination || strings.HasPrefix(w.Name(), "etcd-")
		s.perSecond += operationsPerSecond(w.Name())
	}
}

// tell copies the shape's decisions to the dice.
func (s *shape) tell(d *Dice) {
	d.Servers, d.Cores, d.Clients, d.Wild = max(s.options.Nodes, s.options.Cores), s.options.Cores,
		s.clients(), s.wild
	d.Members = s.members
	d.Coordination = s.coordination
	d.Hasty, d.Alone, d.Epochs, d.Transactions = s.hasty, s.alone, s.epochs, s.transactions
	if s.options.Separate {
		d.Servers = s.options.Nodes + s.options.Cores
	}
}

// clients returns the number of clients of the workloads, without extras.
func (s *shape) clients() (n int) {
	for _, load := range s.workloads {
		n += load.Clients()
	}
	return n
}

// String describes the cluster and the load.
func (s *shape) String() string {
	d := &Dice{}
	s.tell(d)
	text := fmt.Sprintf("%d nodes and %d core members on %d servers, ticks of %v;", s.options.Nodes,
		s.options.Cores, d.Servers, s.tick)
	if s.hasty {
		text += " hasty;"
	}
	if s.alone {
		text += " one replica;"
	}
	if s.epochs {
		text += " epochs;"
	}
	for _, load := range s.all() {
		text += " " + load.Name()
	}
	return text
}
