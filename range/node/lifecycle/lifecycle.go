package lifecycle

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/leadership"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// Rooms is what the other rooms of a node do for its replicas. Each method is for one replica.
type Rooms interface {
	// Machine returns the state machine that the host drives for a replica that is being opened.
	Machine(*hosted.Replica, *replica.Replica) group.StateMachine
	// Campaign makes a replica ask for votes that a split has just made.
	Campaign(*hosted.Replica)
	// Closed, Merged and Removed report that a replica answers nothing any more, that its partition
	// has become a part of another one, and that nothing is left of it.
	Closed(*hosted.Replica)
	Merged(*hosted.Replica)
	Removed(*hosted.Replica)
}

// Lifecycle makes the replicas of a node those that the table lists, and those that splits and
// merges make. New makes it, Reopen comes first, and Run runs its goroutines.
type Lifecycle struct {
	*hosted.Node
	// Shared is what all replicas share. It is set before Reopen.
	Shared    *replica.Node
	rooms     Rooms
	elections *leadership.Elections

	Reconciler Reconciler
	Children   Children
	Merged     Merged
	// broken maps partitions to a brokenReplica if their replica is on disk and does not open.
	broken   sync.Map
	openings openings
	// due are the partitions that the Reconciler is to look at.
	due dueList
	// writing counts the goroutines of writes that were given up.
	writing sync.WaitGroup
	// ending is closed when the node is closing.
	ending chan struct{}

	counts
}

// counts are what a Lifecycle counts.
type counts struct {
	created, splitReplicas, removed prometheus.Counter
	brokenReplicas                  prometheus.Gauge
}

// New makes a Lifecycle.
func New(n *hosted.Node, rooms Rooms, e *leadership.Elections) *Lifecycle {
	l := &Lifecycle{Node: n, rooms: rooms, elections: e, ending: make(chan struct{})}
	l.counts = counts{
		created:        n.Metrics.Counter("replicas_created_total", "Replicas created."),
		splitReplicas:  n.Metrics.Counter("split_replicas_total", "Replicas made by splits."),
		removed:        n.Metrics.Counter("replicas_removed_total", "Replicas removed."),
		brokenReplicas: n.Metrics.Gauge("broken_replicas", "Replicas on disk that do not open."),
	}
	l.due.init()
	l.Reconciler.init(l)
	l.Children.init(l)
	l.Merged.init(l)
	return l
}

// Run makes, removes and closes replicas until the context ends.
func (n *Lifecycle) Run(ctx context.Context) {
	defer n.writing.Wait()
	var burying sync.WaitGroup
	defer burying.Wait()
	burying.Go(func() { n.Merged.bury(ctx) })
	n.Reconciler.run(ctx)
}

// Close notes that the node is closing: nothing is waited for any more. It is called once.
func (n *Lifecycle) Close() { close(n.ending) }

// closing reports whether Close was called.
func (n *Lifecycle) closing() bool {
	select {
	case <-n.ending:
		return true
	default:
		return false
	}
}
