package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// lockedCrash waits for the moment in which transactions that are not over have written to a
// partition, by what a majority of its replicas has applied. Then the servers that have a replica
// of it end, all together: what those transactions have locked is known only to the disks.
//
// Some of the servers that lose their power write their state to tables at that moment, as all do
// now and then. What the others had locked comes from their logs again, so that replicas, and
// partitions of one transaction, may differ in what they would forget.
type lockedCrash struct {
	// Partition is a place among the partitions of which that is true, counted around.
	Partition int
	// Delay is how long after that moment they end.
	Delay time.Duration
	// Spared is how many followers go on.
	Spared int
	// Clean: they are stopped. Otherwise they lose their power.
	Clean bool
	// Flushed is how many of those that lose their power write their state before, and Unsynced
	// what is left of what they had not synced, as in crash.
	Flushed  int
	Unsynced int `most:"100"`
}

var lockedCrashes = register("locked-crash", 0, 3*time.Second, func(d *Dice) lockedCrash {
	return lockedCrash{
		Partition: d.IntN(100), Delay: d.Between(time.Millisecond, 4*time.Millisecond),
		Spared: d.Of(0, 0, 0, 0, 1), Clean: d.IntN(4) == 0,
		Flushed: d.Of(1, 2, 2, 2, 3), Unsynced: d.Of(0, 50, 100),
	}
})

// lockedEvery is how long after one look at the replicas the next one comes. A transaction is over
// some milliseconds after it has locked anything.
const lockedEvery = time.Millisecond

// Begin implements Effect.
func (f lockedCrash) Begin(w *World) (string, func() string) {
	ended, down := make(chan struct{}), make(chan []int, 1)
	over := w.storm(f)
	w.background(func(done <-chan struct{}) {
		defer over()
		var id uint64
		var servers []int
		for servers == nil {
			select {
			case <-done:
				return
			case <-ended:
				return
			case <-time.After(lockedEvery):
			}
			id, servers = w.locked(f.Partition)
		}
		servers = servers[:max(1, len(servers)-f.Spared)]
		f.end(w, id, servers)
		down <- servers
		select {
		case <-ended:
			// No other fault starts them, unless that was about to happen at this moment.
			select {
			case servers = <-down:
				w.startAll(servers)
			default:
			}
		default:
		}
	})
	return "the servers of a partition will end when it has intents", func() string {
		close(ended)
		select {
		case servers := <-down:
			w.startAll(servers)
			return fmt.Sprintf("servers %v started", servers)
		default:
			return "no partition had intents"
		}
	}
}

// end ends servers.
func (f lockedCrash) end(w *World, partition uint64, servers []int) {
	how := "stopped"
	if !f.Clean {
		how = "crashed"
		w.flush(servers[:min(f.Flushed, len(servers))])
	}
	time.Sleep(f.Delay)
	if f.Clean {
		w.stop(servers...)
	} else {
		w.kill(f.Unsynced, servers...)
	}
	w.count("ends with intents")
	w.Event("servers %v %s: partition %d had intents", servers, how, partition)
}

// locked finds, among the partitions in which a majority of the replicas has intents, the one that
// comes in a place, counted around; and the servers that have a replica of it, its leader first. It
// returns no servers if there is none.
func (w *World) locked(at int) (id uint64, servers []int) {
	type found struct {
		servers     []int
		have, peers int
		term        uint64
	}
	partitions := make(map[uint64]*found)
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		for _, r := range p.Replicas() {
			f := partitions[r.Partition]
			if f == nil {
				f = &found{peers: len(r.Peers)}
				partitions[r.Partition] = f
			}
			if r.Intents > 0 {
				f.have++
			}
			if r.Leads && r.Term >= f.term {
				f.term = r.Term
				f.servers = slices.Insert(f.servers, 0, i)
			} else {
				f.servers = append(f.servers, i)
			}
		}
	}
	maps.DeleteFunc(partitions, func(_ uint64, f *found) bool { return f.have <= f.peers/2 })
	if len(partitions) == 0 {
		return 0, nil
	}
	ids := slices.Sorted(maps.Keys(partitions))
	id = ids[at%len(ids)]
	return id, partitions[id].servers
}

// flush has servers write their state to tables.
func (w *World) flush(servers []int) {
	w.power <- struct{}{}
	defer func() { <-w.power }()
	for _, server := range servers {
		if p := w.Cluster.Process(server); p != nil {
			_ = p.FlushState() // one whose disk is made to fail goes without
		}
	}
}

// startAll starts servers that are down.
func (w *World) startAll(servers []int) {
	for _, server := range servers {
		w.start(server)
	}
}
