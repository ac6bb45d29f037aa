package sim

import (
	"fmt"
	"time"
)

// transfer makes a leader transfer its leadership to one of its followers, several times, each time
// to the next follower.
type transfer struct {
	// Partition is an index into the partitions, modulo their number.
	Partition int
	Times     int `most:"1000"`
	Every     time.Duration
}

var _ = register("transfer", 14, 0, func(d *Dice) transfer {
	return transfer{d.IntN(100), d.Of(1, 1, 2, 4, 8), d.Between(20*time.Millisecond, time.Second)}
})

// Begin implements Effect. Repeated transfers go on while other faults happen.
func (f transfer) Begin(w *World) (string, func() string) {
	did := w.transferLeadership(f.Partition)
	if f.Times > 1 {
		over := w.storm(f)
		w.background(func(done <-chan struct{}) {
			defer over()
			for range f.Times - 1 {
				select {
				case <-done:
					return
				case <-time.After(f.Every):
				}
				w.Event("%s", w.transferLeadership(f.Partition))
			}
		})
	}
	return did, nil
}

// transferLeadership makes the leader of the partition at an index transfer its leadership to the
// follower whose turn it is.
func (w *World) transferLeadership(at int) string {
	id, leader, followers, ok := w.partition(at)
	if !ok {
		return "no replica leads, and none hands over"
	}
	return w.handOver(id, leader, followers[w.turn()%len(followers)])
}

// leaderApart cuts a leader off from the other servers and from some of the clients. The other
// clients still reach the leader, and must not get stale answers while the clients without the
// leader find its successor.
type leaderApart struct {
	Server  Target
	Clients []int
	Mode    string `one:"broken silent"`
}

var leadersApart = register("leader-apart", 10, 12*time.Second, func(d *Dice) leaderApart {
	f := leaderApart{Server: d.Leader(), Mode: d.Mode()}
	f.Clients = d.SomeClients()
	return f
})

// Begin implements Effect.
func (f leaderApart) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.count("cuts")
	each := func(do func(host string)) {
		for other := range w.Cluster.Servers() {
			if other != server {
				do(w.Cluster.Host(other))
			}
		}
		for _, c := range f.Clients {
			do(fmt.Sprintf("client-%d", c))
		}
	}
	n, host := w.Cluster.Network(), w.Cluster.Host(server)
	each(func(other string) { n.CutBoth(host, other, mode(f.Mode)) })
	return fmt.Sprintf("server %d, a leader, cut off from all servers and some clients", server),
		func() string {
			each(func(other string) { n.Heal(host, other) })
			return fmt.Sprintf("server %d reaches the others", server)
		}
}
