package etcdmetrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// probeEvery is the interval at which the round trip to each other member is measured.
	// probeTimeout limits one measurement. Both are as in etcd.
	probeEvery, probeTimeout = 5 * time.Second, 5 * time.Second
)

// Watched has the functions through which a Watcher observes the members.
type Watched struct {
	// Leader returns the member that leads, or 0, and a channel that is closed when the leader
	// changes.
	Leader func() (leader uint64, changed <-chan struct{})
	// Peers returns the other members. Ask makes a small call to a member.
	Peers func() []Peer
	Ask   func(context.Context, Peer) error
}

// ID formats a member's id as etcd's metrics and tools do.
func ID(id uint64) string { return fmt.Sprintf("%x", id) }

// Peer is another member: its id in hexadecimal, and its address.
type Peer struct{ ID, Address string }

// Watcher measures events that must be observed while they happen.
type Watcher struct {
	changes    prometheus.Counter
	roundTrips *prometheus.HistogramVec
}

// NewWatcher makes a Watcher whose metrics are in a registry.
func NewWatcher(r prometheus.Registerer) *Watcher {
	w := &Watcher{
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "etcd_server_leader_changes_seen_total",
			Help: "Changes of the leader that this member has seen."}),
		roundTrips: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "etcd_network_peer_round_trip_time_seconds",
			Help: "Time of a small call to another member. One that fails counts for nothing.",
			// These are etcd's buckets: 0.1 ms to 3.3 s.
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}, []string{"To"}),
	}
	r.MustRegister(w.changes, w.roundTrips)
	return w
}

// Run watches until the context ends.
func (w *Watcher) Run(ctx context.Context, of Watched) {
	var running sync.WaitGroup
	running.Go(func() { w.followLeader(ctx, of) })
	running.Go(func() { w.timePeers(ctx, of) })
	running.Wait()
}

func (w *Watcher) followLeader(ctx context.Context, of Watched) {
	last := uint64(0)
	for {
		leader, changed := of.Leader()
		if leader != 0 && leader != last {
			last = leader
			w.changes.Inc()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watcher) timePeers(ctx context.Context, of Watched) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		var asking sync.WaitGroup
		for _, p := range of.Peers() {
			asking.Go(func() {
				limited, cancel := context.WithTimeout(ctx, probeTimeout)
				defer cancel()
				began := time.Now()
				if of.Ask(limited, p) == nil {
					w.roundTrips.WithLabelValues(p.ID).Observe(time.Since(began).Seconds())
				}
			})
		}
		asking.Wait()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
