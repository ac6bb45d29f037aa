package sim

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// World is the state of one run that faults and checks share.
type World struct {
	*driver.Run
	Cluster *kvtest.Cluster
	cores   int
	// members: the members of the core change.
	members bool
	// electionTimeout is the shortest election timeout.
	electionTimeout time.Duration
	// lasting ends the storms of faults that last until everything is healed.
	lasting []func()

	done    chan struct{} // closed when the schedule is over
	running sync.WaitGroup
	// power is held by the goroutine that starts or ends a server. It is a channel, not a mutex,
	// because starts and ends can take virtual time.
	power  chan struct{}
	merges merges
	// ending is called when a server is about to end.
	ending func(server int)

	mu struct {
		sync.Mutex
		// waiting has the channels that get the next vote of a partition.
		waiting map[uint64][]chan<- granted
		// log is the end of the servers' logs at the first violation, and trace has the last
		// messages between the servers at that time.
		log, trace string
		turns      int
		counts     map[string]int
		// asked is the number of the last requested merge; operators are numbered.
		asked uint64
		// excused has the servers that may have failed because of a fault of their disks.
		excused map[int]bool
		// down are the servers that did not start because of their disk.
		down  map[int]bool
		wiped map[int]bool
		// membersChanged: the members of the core may differ from the first members.
		membersChanged bool
		// replaced has the nodes that were decommissioned, and whose servers started again with
		// empty directories.
		replaced map[uint64]bool
	}
}

func newWorld(cluster *kvtest.Cluster, cores int, electionTimeout time.Duration) *World {
	w := &World{Cluster: cluster, cores: cores, electionTimeout: electionTimeout,
		done: make(chan struct{}), power: make(chan struct{}, 1)}
	w.mu.waiting = make(map[uint64][]chan<- granted)
	w.mu.replaced = make(map[uint64]bool)
	w.mu.counts, w.mu.excused, w.mu.down, w.mu.wiped = make(map[string]int), make(map[int]bool),
		make(map[int]bool), make(map[int]bool)
	w.Run = driver.NewRun(cluster.Open)
	w.OnViolation = w.keepLog
	return w
}

// keepLog keeps the servers' logs and last messages at the first call; later calls do nothing.
func (w *World) keepLog() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.log == "" {
		w.mu.log, w.mu.trace = w.Cluster.Log(), w.Cluster.Messages().Trace()
	}
}

// turn returns a number that grows with each call, for choices in turn.
func (w *World) turn() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.turns++
	return w.mu.turns
}

// count counts what happened, for the report.
func (w *World) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.counts[what]++
}

// background runs do in a goroutine. do must return when done is closed.
func (w *World) background(do func(done <-chan struct{})) {
	w.running.Go(func() { do(w.done) })
}

// excuse notes that a server may fail because of its disk.
func (w *World) excuse(server int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.excused[server] = true
}

func (w *World) isExcused(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.excused[server]
}

// keepDown notes whether a server is down because of its failing disk.
func (w *World) keepDown(server int, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.down[server] = down
}

func (w *World) isKeptDown(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.down[server]
}

// mayWipe says whether a server may lose its disk, and if so records that it does.
func (w *World) mayWipe(server int) bool {
	w.mu.Lock()
	wipedBefore, wipedCore := len(w.mu.wiped) > 0, false
	for other := range w.mu.wiped {
		wipedCore = wipedCore || other < w.cores
	}
	changed := w.mu.membersChanged
	w.mu.Unlock()
	if server < w.cores && (w.cores == 1 || wipedCore) || wipedBefore && !w.isWhole() ||
		changed {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.wiped[server] = true
	return true
}

// mayBeOutside says whether a server may be no member of the core any more: its disk was lost, or
// the core's members have changed.
func (w *World) mayBeOutside(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.wiped[server] || w.mu.membersChanged
}

// isWhole says whether the core answers, every partition has all its replicas on nodes that are
// alive, and no operator is at work.
func (w *World) isWhole() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		return false
	}
	defer client.Close()
	operators, err := admin.New(client).Operators(ctx)
	if err != nil || len(operators) > 0 {
		return false
	}
	whole, err := driver.Whole(ctx, client)
	return whole && err == nil
}

func (w *World) isWiped(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.wiped[server]
}
