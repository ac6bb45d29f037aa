package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// atMerge waits for a moment of a merge, which it recognises by the messages between the servers.
// Then it breaks servers that take part in the merge.
type atMerge struct {
	// Moment is when a message is on its way to a follower: with the entry that freezes a
	// partition, with the entry that merges two partitions, or with the news that the second entry
	// is committed.
	Moment string `one:"freeze merge commit"`
	// Skip is how many such moments pass before the fault happens.
	Skip int `most:"1000"`
	// Delay is the time from the moment to the fault.
	Delay time.Duration
	// Victim is the server that the fault breaks: the sender of the message, its receiver, all
	// servers, or the leader of the core.
	Victim string `one:"leader follower all core"`
	// How is what happens. The victims lose their power, are stopped, are cut off silently, or have
	// slow disks (crash, stop, cut, slow); the message and all later messages from the leader to
	// the follower are lost (lose); the leader hands over to the follower (transfer); a replica of
	// the partition moves, or the partition splits, or merges with its next neighbour (move, split,
	// merge).
	How      string `one:"crash stop cut slow lose transfer move split merge"`
	Unsynced int    `most:"100"`
}

var atMerges = register("at-merge", 0, 30*time.Second, func(d *Dice) atMerge {
	f := atMerge{Moment: []string{"freeze", "merge", "merge", "commit", "commit"}[d.IntN(5)],
		Skip: d.Of(0, 0, 0, 1, 3), Victim: []string{"leader", "leader", "follower", "follower",
			"follower", "all", "core"}[d.IntN(7)],
		How: []string{"crash", "crash", "crash", "crash", "cut", "cut", "stop", "slow", "lose", "lose",
			"lose", "lose", "transfer", "transfer", "move", "split", "merge"}[d.IntN(17)],
		Unsynced: d.Of(0, 50, 100)}
	switch d.IntN(4) {
	case 0, 1:
		f.Delay = d.Between(0, 4*time.Millisecond)
	case 2:
		f.Delay = d.Between(0, 100*time.Millisecond)
	}
	switch f.How {
	case "cut":
		f.Victim, f.Delay = "follower", 0
	case "lose":
		// The follower does not get the entry, and the log may be truncated before the follower
		// could get it.
		f.Victim, f.Delay, f.Skip = "follower", 0, 0
		f.Moment = []string{"freeze", "merge", "merge", "merge"}[d.IntN(4)]
	}
	return f
})

// slowAtMerge is how long the sync of a log takes on a victim with a slow disk.
const slowAtMerge = 700 * time.Millisecond

// Begin implements Effect.
func (f atMerge) Begin(w *World) (string, func() string) {
	moments := make(chan mergeMoment, 1)
	ended, undo := make(chan struct{}), make(chan func() string, 1)
	over := w.storm(f)
	wait := &mergeWait{moment: f.Moment, skip: f.Skip, tell: moments}
	if f.How == "lose" {
		wait.atOnce = func(m mergeMoment) {
			w.Cluster.Messages().Set(m.from, m.to, kvtest.MessageFaults{Lose: 100})
		}
	}
	w.awaitMerge(wait)
	w.background(func(done <-chan struct{}) {
		defer over()
		defer w.forgetMerge(wait)
		var m mergeMoment
		select {
		case <-done:
			return
		case <-ended:
			w.forgetMerge(wait)
			select {
			case m = <-moments: // the moment came at the same time
				if f.How == "lose" {
					w.Cluster.Messages().Set(m.from, m.to, kvtest.MessageFaults{})
				}
			default:
			}
			return
		case m = <-moments:
		}
		time.Sleep(f.Delay) // virtual
		undo <- f.strike(w, m)
		select {
		case <-ended:
			// No other caller ends the fault, unless its end was about to come at this moment.
			select {
			case end := <-undo:
				w.Event("%s", end())
			default:
			}
		default:
		}
	})
	return fmt.Sprintf("something will happen at the %s of a merge", f.Moment), func() string {
		close(ended)
		select {
		case end := <-undo:
			return end()
		default:
			return "no merge came so far"
		}
	}
}

// strike makes the fault happen, and returns the function that ends it.
func (f atMerge) strike(w *World, m mergeMoment) (end func() string) {
	nothing := func() string { return "what came at a merge is over" }
	at := fmt.Sprintf("the %s of partition %d, from server %d to server %d", f.Moment, m.partition,
		m.from, m.to)
	victims := []int{m.from}
	switch f.Victim {
	case "follower":
		victims = []int{m.to}
	case "core":
		core, ok := w.find("core")
		if !ok {
			w.Event("at %s: no server leads the core", at)
			return nothing
		}
		victims = []int{core}
	case "all":
		victims = nil
		for i := range w.Cluster.Servers() {
			victims = append(victims, i)
		}
	}
	w.count(f.How + " at the " + f.Moment + " of a merge")
	switch f.How {
	case "crash", "stop":
		if f.How == "crash" {
			w.kill(f.Unsynced, victims...)
		} else {
			w.stop(victims...)
		}
		w.Event("at %s: %s of servers %v", at, f.How, victims)
		return func() string {
			w.startAll(victims)
			return fmt.Sprintf("servers %v started", victims)
		}
	case "cut":
		for _, v := range victims {
			w.Cluster.Isolate(v, mode(silent))
		}
		w.count("cuts")
		w.Event("at %s: servers %v isolated", at, victims)
		return func() string {
			for _, v := range victims {
				w.Cluster.Rejoin(v)
			}
			return fmt.Sprintf("servers %v rejoined", victims)
		}
	case "lose":
		w.Event("at %s: the message is lost, and all that follow", at)
		return func() string {
			w.Cluster.Messages().Set(m.from, m.to, kvtest.MessageFaults{})
			return fmt.Sprintf("messages from server %d reach server %d", m.from, m.to)
		}
	case "slow":
		for _, v := range victims {
			w.Cluster.Disk(v).SetSyncDelay(slowAtMerge)
		}
		w.Event("at %s: the disks of servers %v are slow", at, victims)
		return func() string {
			for _, v := range victims {
				w.Cluster.Disk(v).SetSyncDelay(syncDelay)
			}
			return fmt.Sprintf("the disks of servers %v are quick", victims)
		}
	case "transfer":
		w.Event("at %s: %s", at, w.handOver(m.partition, m.from, m.to))
	default:
		w.asking(func(ctx context.Context, client *kv.Client) {
			w.Event("at %s: %s", at, f.change(ctx, w, client, m.partition))
		})
	}
	return nothing
}

// change asks the core to move, split or merge the partition.
func (f atMerge) change(ctx context.Context, w *World, client *kv.Client, id uint64) string {
	ctx, cancel := context.WithTimeout(ctx, movePatience)
	defer cancel()
	partitions, err := admin.New(client).Partitions(ctx, "")
	i := slices.IndexFunc(partitions, func(p admin.PartitionInfo) bool { return p.ID == id })
	switch {
	case err != nil || i < 0:
		return fmt.Sprintf("partition %d is not in the table: %v", id, err)
	case f.How == "move":
		return move{Partition: i}.one(ctx, w, client, 0)
	case f.How == "split":
		return split{Partition: i, Share: 500}.one(ctx, w, client, 0)
	}
	left := slices.IndexFunc(boundaries(partitions),
		func(p admin.PartitionInfo) bool { return p.ID == id })
	if left < 0 {
		return fmt.Sprintf("partition %d has no right neighbour", id)
	}
	return merge{Boundary: left}.one(ctx, w, client, 0)
}

// handOver makes a partition's leader on one server transfer leadership to the replica on another
// server.
func (w *World) handOver(partition uint64, from, to int) string {
	p, q := w.Cluster.Process(from), w.Cluster.Process(to)
	if p == nil || q == nil {
		return "the leader or the follower is gone"
	}
	for _, r := range q.Replicas() {
		if r.Partition == partition {
			p.TransferLeader(partition, r.Replica)
		}
	}
	return fmt.Sprintf("server %d hands partition %d over to server %d", from, partition, to)
}
