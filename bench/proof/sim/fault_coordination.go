package sim

import (
	"fmt"
	"slices"
	"time"
)

// coordinationLeader is the target for the leader of the coordination store.
const coordinationLeader Target = "coordination"

// transferCoordination makes the leader of the coordination store transfer its leadership to other
// members, several times in a row.
type transferCoordination struct {
	Times int `most:"1000"`
	Every time.Duration
}

var transfersOfCoordination = register("transfer-coordination", 0, 0,
	func(d *Dice) transferCoordination {
		return transferCoordination{d.Of(1, 1, 2, 4), d.Between(20*time.Millisecond, time.Second)}
	})

// Begin implements Effect.
func (f transferCoordination) Begin(w *World) (string, func() string) {
	did := w.handOverCoordination()
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
				w.Event("%s", w.handOverCoordination())
			}
		})
	}
	return did, nil
}

// handOverCoordination makes the leader transfer its leadership to the member whose turn it is.
func (w *World) handOverCoordination() string {
	server, ok := w.find(coordinationLeader)
	if !ok {
		return "no member leads the coordination store, and none hands over"
	}
	p := w.Cluster.Process(server)
	if p == nil {
		return "the leader of the coordination store has just ended"
	}
	_, members := p.CoordinationMembers()
	if len(members) < 2 {
		return "the coordination store has one member"
	}
	slices.Sort(members)
	to := members[w.turn()%len(members)]
	p.TransferCoordination(to)
	return fmt.Sprintf("server %d hands the coordination store over to member %d", server, to)
}

// resetCoordination breaks the connections between the leader of the coordination store and all
// other servers, again and again, while the leader goes on leading. So answers are lost, although
// the requests are executed.
type resetCoordination struct{ Every time.Duration }

var resetsOfCoordination = register("reset-coordination", 0, 4*time.Second,
	func(d *Dice) resetCoordination {
		return resetCoordination{d.Between(20*time.Millisecond, 200*time.Millisecond)}
	})

// Begin implements Effect.
func (f resetCoordination) Begin(w *World) (string, func() string) {
	over := make(chan struct{})
	w.background(func(done <-chan struct{}) {
		for {
			if server, ok := w.find(coordinationLeader); ok {
				for other := range w.Cluster.Servers() {
					if other != server {
						w.Cluster.Network().Drop(w.Cluster.Host(server), w.Cluster.Host(other))
					}
				}
			}
			select {
			case <-done:
				return
			case <-over:
				return
			case <-time.After(f.Every):
			}
		}
	})
	return "connections of the coordination store's leader break", func() string {
		close(over)
		return "connections of the coordination store's leader last"
	}
}

// coordinationFails is a fault of the leader of the coordination store, and sometimes one more of
// its successor. The leader loses its power, is paused, is cut off from the other servers or from
// all hosts, has a slow or full disk, has its connections reset, or transfers its leadership.
func coordinationFails(d *Dice, at time.Duration) (faults []Fault) {
	for range d.Of(1, 1, 1, 2) {
		lasts := d.Between(50*time.Millisecond, 8*time.Second)
		var f Fault
		switch d.IntN(12) {
		case 0, 1:
			f = fault(at, lasts, crash{coordinationLeader, d.Of(0, 50, 100)})
		case 2:
			f = fault(at, lasts/4, stop{coordinationLeader})
		case 3, 4:
			f = fault(at, lasts, pause{coordinationLeader})
		case 5:
			f = fault(at, lasts, isolation{coordinationLeader, d.Mode()})
		case 6:
			f = leadersApart.at(d, at)
			apart := f.Effect.(leaderApart)
			apart.Server, apart.Clients = coordinationLeader, nil
			f.Effect = apart
		case 7:
			f = fault(at, lasts, slowDisk{coordinationLeader, d.Between(10*time.Millisecond,
				200*time.Millisecond)})
		case 8:
			f = fault(at, lasts, diskLow{coordinationLeader})
		case 9, 10:
			// A command that takes long to be committed is sent again.
			f = resetsOfCoordination.at(d, at)
			faults = append(faults, fault(at, f.For, slowDisk{coordinationLeader,
				d.Between(50*time.Millisecond, 300*time.Millisecond)}))
		default:
			f = transfersOfCoordination.at(d, at)
		}
		faults = append(faults, f)
		at += d.Between(100*time.Millisecond, 4*time.Second)
	}
	return faults
}
