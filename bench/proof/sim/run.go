package sim

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

const (
	// latency is the delay of all links, in one direction.
	latency = 300 * time.Microsecond
	// syncDelay is the longest time of a log's sync without a fault.
	syncDelay = 2 * time.Millisecond
	// recovery is the time within which a whole cluster must serve, and its replicas must be equal.
	recovery = 90 * time.Second
)

// Config configures a run.
type Config struct {
	Schedule Schedule
	// Workloads, if not nil, are run instead of those of the seed.
	Workloads []driver.Workload
	// Backups has the run make backups and restore them, whatever the seed does.
	Backups bool
	// Configure may change the servers' configuration further.
	Configure func(server int, c *embedded.ServerConfig)
}

// Report is the result of a run.
type Report struct {
	Schedule Schedule
	Cluster  string
	// Duration is the virtual time of the whole run.
	Duration time.Duration
	// Violations are broken guarantees. Those in History and Later are found only by checking them.
	Violations []string
	// Log is the end of the servers' logs at the first violation, or at the end of the run. Trace
	// has the last messages between the servers at that time.
	Log, Trace string
	// Events is what the schedule did, in order.
	Events []string
	// Operations counts operations by kind and outcome.
	Operations map[string]int
	// Transactions is the number of successful transactions. Retries is the number of attempts that
	// were followed by another attempt.
	Transactions, Retries int
	// Longest is the longest virtual time in which no operation at all succeeded.
	Longest time.Duration
	// Rows is how operations ended, in calm and in storm.
	Rows []calm.Row
	// Covered says what the servers had to do, and what was done to them.
	Covered map[string]int
	History []history.Operation
	// Later makes the checks that take real time, and returns violations. It must be called outside
	// of the bubble.
	Later func() []string
}

// Run does one run. It is called inside a synctest bubble.
func Run(t testing.TB, c Config) Report {
	shape := shapeOf(c.Schedule.Seed, c.Schedule.Transactions)
	if c.Workloads != nil {
		shape.choose(c.Workloads)
	}
	if c.Backups {
		shape.addBackups(c.Schedule.Seed)
	}
	backups := shape.backups()
	random := rand.New(rand.NewPCG(c.Schedule.Seed, 2))
	var counters coverage
	merged := newRepeatedMerges()
	configure := shape.options.Configure
	shape.options.Configure = func(server int, s *embedded.ServerConfig) {
		configure(server, s)
		s.Registry = counters.registry(server)
		s.Logger = merged.logger(server, s.Logger)
		if backups != nil {
			s.OpenTarget = backups.open
		}
		if c.Configure != nil {
			c.Configure(server, s)
		}
	}
	w := newWorld(kvtest.Start(t, shape.options), shape.options.Cores, shape.electionTimeout())
	w.members, w.ending = shape.members, counters.keep
	for i := range w.Cluster.Servers() {
		w.Cluster.Disk(i).SetSyncDelay(syncDelay)
		w.Cluster.Clock(i).SetLimit(maxClock)
		w.Cluster.Clock(i).SetSpeed(shape.speeds[i%len(shape.speeds)])
	}
	bubbleEtcd()
	if backups != nil {
		backups.bubble()
	}
	service := shape.coordinationService(w.Cluster)
	w.Run.OpenEtcd = service.Open
	if shape.alone {
		w.Run.Replicas = 1
	}
	stopWatching := watchElections(w, shape.electionTimeout())
	// These clients are opened before all others, so that the host "client-1" of a fault is the
	// first of them.
	var clients []*driver.Client
	connections := 0
	for _, load := range shape.all() {
		connections += load.Clients()
	}
	for range connections {
		retries := driver.NewRetries()
		clients = append(clients, w.Client(w.Cluster.Client(t, kv.Metrics(retries)), retries, ""))
	}
	ctx := context.Background()
	for _, load := range shape.all() {
		setup, cancel := context.WithTimeout(ctx, recovery)
		err := load.Setup(setup, w.Run)
		cancel()
		if err != nil {
			t.Fatalf("setting %s up: %v", load.Name(), err)
		}
	}
	setup, cancel := context.WithTimeout(ctx, recovery)
	lost, err := newRoutes(setup, w)
	cancel()
	if err != nil {
		t.Fatalf("setting %s up: %v", routesName, err)
	}
	// The creation of keyspaces affects operations for as long as a restart does.
	w.storm(stop{})()
	w.Pace = shape.pace(c.Schedule, w.Elapsed())
	stopLoad := drive(w, shape.all(), clients, random)
	loseWay := rand.New(rand.NewPCG(c.Schedule.Seed, 3))
	w.background(func(done <-chan struct{}) { lost.drive(done, loseWay) })
	w.play(c.Schedule, &counters)
	w.heal()
	if err := w.lastCalm(); err != nil {
		t.Fatal(err)
	}
	stopLoad()
	w.check(t, shape.all(), &counters)
	w.Judge()
	w.checkNothingIsLeft(&counters, lost, loseWay)
	stopWatching()

	w.keepLog()
	covered := counters.sum()
	covered["merges applied again"] = merged.count()
	calls := service.Calls()
	covered["coordination calls past gRPC"] = int(calls.Direct)
	covered["coordination calls by gRPC"] = int(calls.GRPC)
	for what, n := range w.mu.counts {
		covered[what] += n
	}
	transactions, retries := w.Transactions()
	return Report{
		Transactions: transactions, Retries: retries,
		Schedule: c.Schedule, Cluster: shape.String(), Log: w.mu.log, Trace: w.mu.trace,
		Duration: w.Elapsed(), Violations: w.Violations(),
		Events: w.Events(), Operations: w.Operations(), Longest: w.Longest(), Rows: w.Rows(),
		Covered: covered, History: w.History.Operations(), Later: w.CheckAll,
	}
}

// drive starts the clients of the workloads, each in its own goroutine.
func drive(w *World, workloads []driver.Workload, clients []*driver.Client, random *rand.Rand) (
	stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, load := range workloads {
		for i := range load.Clients() {
			source := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			client := clients[0].For(load.Name())
			clients = clients[1:]
			running.Go(func() { load.Drive(withPriority(ctx, i), w.Run, i, client, source) })
		}
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// moment is a step of the schedule, and the time when it is due.
type moment struct {
	at time.Time
	do func()
}

// gaugesEvery is the shortest time between two checks of the gauges. Gathering the metrics at every
// step would take a tenth of a run's time.
const gaugesEvery = 10 * time.Second

// play begins and ends the faults at their times, and checks the gauges after some of the steps.
func (w *World) play(s Schedule, counters *coverage) {
	began := time.Now()
	end := began.Add(s.Duration)
	var due []moment
	add := func(m moment) {
		i, _ := slices.BinarySearchFunc(due, m, func(a, b moment) int {
			if a.at.Equal(b.at) {
				return -1 // insert m after the moments of the same time
			}
			return cmp.Compare(a.at.UnixNano(), b.at.UnixNano())
		})
		due = slices.Insert(due, i, m)
	}
	for _, f := range s.Faults {
		if f.At >= s.Duration {
			continue
		}
		add(moment{began.Add(f.At), func() {
			over := w.storm(f.Effect)
			did, stop := f.Effect.Begin(w)
			w.Event("%s: %s", f, did)
			if stop == nil {
				w.outlive(f.Effect, over)
				return
			}
			add(moment{time.Now().Add(f.For), func() {
				w.Event("  %s", stop())
				w.outlive(f.Effect, over)
			}})
		}})
	}
	looked := began
	for len(due) > 0 && due[0].at.Before(end) {
		next := due[0]
		due = due[1:]
		time.Sleep(time.Until(next.at))
		next.do()
		if time.Since(looked) >= gaugesEvery {
			counters.checkGauges(w)
			looked = time.Now()
		}
	}
	time.Sleep(time.Until(end))
	close(w.done)
	w.running.Wait()
	// Faults that have not ended end now, so that each fault undoes its effect.
	for _, m := range due {
		m.do()
	}
}

// heal makes the cluster whole again.
func (w *World) heal() {
	over := w.storm(stop{})
	defer func() {
		over()
		for _, over := range w.lasting {
			over()
		}
	}()
	w.Cluster.HealAll()
	w.Cluster.Messages().Heal()
	for i := range w.Cluster.Servers() {
		w.Cluster.Disk(i).Heal()
		if w.outlasts() {
			w.Cluster.Clock(i).SetOffset(0)
		}
		w.start(i)
	}
	w.Event("all healed")
	// Servers look at the free space of their disks once a second.
	time.Sleep(2 * time.Second)
}
