package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// lockedCrash waits until a majority of a partition's replicas has applied writes of transactions
// that are not over. Then the servers that have a replica of the partition end, all together: the
// locks of those transactions are then known only to the disks.
//
// Some of the servers that lose their power flush their state to tables at that moment, as all
// servers do now and then. The locks on the other servers must be recovered from their logs. So
// replicas, and partitions of one transaction, may differ in the locks that they would lose.
type lockedCrash struct {
	// Partition is an index into the partitions with such writes, modulo their number.
	Partition int
	// Delay is the time from that moment to the end of the servers.
	Delay time.Duration
	// Spared is the number of followers that keep running.
	Spared int
	// Clean: the servers are stopped. Otherwise they lose their power.
	Clean bool
	// Flushed is how many of the servers that lose their power flush their state before. Unsynced
	// is the percentage of unsynced blocks that survive, as in crash.
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

// lockedEvery is the time between two looks at the replicas. A transaction is over some
// milliseconds after it has locked anything.
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
			// No other caller starts the servers, unless the end of the fault was about to come at
			// this moment.
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

// end stops the servers, or takes their power.
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

// locked finds a partition in which a majority of the replicas has intents. at is an index into
// these partitions, modulo their number. servers have a replica of the partition; the leader's
// server comes first. locked returns no servers if no partition has such a majority.
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

// flush makes servers write their state to tables.
func (w *World) flush(servers []int) {
	w.power <- struct{}{}
	defer func() { <-w.power }()
	for _, server := range servers {
		if p := w.Cluster.Process(server); p != nil {
			_ = p.FlushState() // fails on a server whose disk is made to fail
		}
	}
}

// startAll starts servers that are down.
func (w *World) startAll(servers []int) {
	for _, server := range servers {
		w.start(server)
	}
}
