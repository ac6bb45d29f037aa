package sim

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// World is what faults and checks have in common in one run.
type World struct {
	*driver.Run
	Cluster *kvtest.Cluster
	cores   int
	// members: those of the core change.
	members bool
	// electionTimeout is the shortest.
	electionTimeout time.Duration
	// lasting ends the storms of faults that last until everything is healed.
	lasting []func()

	done    chan struct{} // closed when the schedule is over
	running sync.WaitGroup
	// power is held by the goroutine that switches a server on or off. It is a channel because that
	// can take virtual time.
	power  chan struct{}
	merges merges
	// ending is called with a server that is about to end.
	ending func(server int)

	mu struct {
		sync.Mutex
		// waiting are told of the next vote in their partition.
		waiting map[uint64][]chan<- granted
		// log and trace are the servers' log, and the last messages between them, at the first
		// violation.
		log, trace string
		turns      int
		counts     map[string]int
		// asked is the last merge that was asked for; operators are numbered.
		asked uint64
		// excused servers may have failed because of their disk; it ends when they start again.
		excused map[int]bool
		// down are the servers that did not start because of their disk.
		down  map[int]bool
		wiped map[int]bool
		// membersChanged: the core's members are, or may be, no longer those that it was founded with.
		membersChanged bool
		// replaced are the nodes that were decommissioned, and whose servers began anew.
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

// keepLog keeps the end of the servers' logs and messages as they are now, unless some are kept
// already.
func (w *World) keepLog() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.log == "" {
		w.mu.log, w.mu.trace = w.Cluster.Log(), w.Cluster.Messages().Trace()
	}
}

// turn counts, so that things are done in turn.
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

// background does something beside the schedule, until done is closed at the latest.
func (w *World) background(do func(done <-chan struct{})) {
	w.running.Go(func() { do(w.done) })
}

// excuse says that a server may fail because of its disk.
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

// keepDown notes whether a server is down because it does not start over its disk.
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

// mayWipe says whether this server may lose its disk, and takes it that it does.
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

// mayBeOutside says whether a server that has nothing but a member of the core may have none: its
// disk was lost, or members have come and gone.
func (w *World) mayBeOutside(server int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.wiped[server] || w.mu.membersChanged
}

// isWhole says whether the core answers, every partition has the replicas that it is to have, on
// nodes that are alive, and nothing is under way.
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
