package sim

import (
	"fmt"
	"time"
)

// voterCrash waits for the next vote in a partition. The voter loses its power Delay later, when
// its vote has just left. The candidate is cut off silently for a time, so that other replicas
// campaign as well.
type voterCrash struct {
	// Partition is an index into the partitions, modulo their number.
	Partition int
	Delay     time.Duration
	Unsynced  int `most:"100"`
	Apart     time.Duration
}

var _ = register("voter-crash", 0, 5*time.Second, func(d *Dice) voterCrash {
	return voterCrash{d.IntN(100), d.Between(0, 3*time.Millisecond), d.Of(0, 50, 100),
		d.Between(time.Second, 10*time.Second)}
})

// granted is a vote: the servers of the voter and of the candidate.
type granted struct{ voter, candidate int }

// Begin implements Effect.
func (f voterCrash) Begin(w *World) (string, func() string) {
	id, _, _, ok := w.partition(f.Partition)
	if !ok {
		return absent(Target(fmt.Sprintf("leader.%d", f.Partition)))
	}
	votes, ended := make(chan granted, 1), make(chan struct{})
	crashed := make(chan int, 1)
	w.awaitVote(id, votes)
	over := w.storm(f)
	w.background(func(done <-chan struct{}) {
		defer over()
		var v granted
		select {
		case <-done:
			return
		case <-ended:
			return
		case v = <-votes:
		}
		w.Cluster.Isolate(v.candidate, mode(silent))
		defer w.Cluster.Rejoin(v.candidate)
		time.Sleep(f.Delay)
		w.kill(f.Unsynced, v.voter)
		select {
		case <-ended:
			w.start(v.voter)
		default:
			crashed <- v.voter
		}
		w.count("cuts")
		w.Event("server %d crashed, after it had voted in partition %d for server %d, which is "+
			"isolated", v.voter, id, v.candidate)
		select {
		case <-done:
		case <-time.After(f.Apart):
		}
		w.Event("server %d rejoined", v.candidate)
	})
	return fmt.Sprintf("the next voter of partition %d will crash", id), func() string {
		close(ended)
		select {
		case voter := <-crashed:
			w.start(voter)
			return fmt.Sprintf("server %d, which has voted, started", voter)
		default:
			return fmt.Sprintf("no replica has voted in partition %d", id)
		}
	}
}

// awaitVote registers a channel for the next vote of a partition. The channel must have room for
// the vote.
func (w *World) awaitVote(partition uint64, votes chan<- granted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.waiting[partition] = append(w.mu.waiting[partition], votes)
}

// voted passes a vote to the registered channels.
func (w *World) voted(partition uint64, v granted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, votes := range w.mu.waiting[partition] {
		votes <- v
	}
	delete(w.mu.waiting, partition)
}
