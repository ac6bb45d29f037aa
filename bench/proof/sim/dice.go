package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// Dice draws the parameters of faults.
type Dice struct {
	*rand.Rand
	// Servers, Cores and Clients are how many the cluster has; servers below Cores are members of
	// the core.
	Servers, Cores, Clients int
	// Members: the members of the core change.
	Members bool
	// Wild: clocks may go beyond the configured bound.
	Wild bool
	// Alone: partitions have one replica, and no server may lose its disk.
	Alone bool
	// Epochs: leaders lose their followers and not their clients, again and again.
	Epochs bool
	// Transactions: the workloads have them.
	Transactions bool
	// Coordination: there are workloads of the coordination service.
	Coordination bool
	// Hasty: a leader can be elected sooner than clocks may differ.
	Hasty bool
}

// Target names a server by its number ("2"), or by what it is when the fault begins: "core" (the
// core's leader), "coordination" (the coordination store's), "leader.5" (of the partition that
// comes fifth, counted around), "follower.5.1" (of that partition, its second follower).
type Target string

// Server draws a target.
func (d *Dice) Server() Target {
	switch n := d.IntN(20); {
	case n < 11:
		return d.Number()
	case n < 18:
		return d.Leader()
	}
	return "core"
}

// Number draws a server by its number.
func (d *Dice) Number() Target { return Target(strconv.Itoa(d.IntN(d.Servers))) }

// Leader draws the leader of some partition.
func (d *Dice) Leader() Target { return Target(fmt.Sprintf("leader.%d", d.IntN(100))) }

// Host draws a host in the network: a server, or now and then a client.
func (d *Dice) Host() string {
	if d.IntN(4) == 0 {
		return fmt.Sprintf("client-%d", 1+d.IntN(d.Clients))
	}
	return fmt.Sprintf("server-%d", d.IntN(d.Servers))
}

// SomeClients draws each client with even chances.
func (d *Dice) SomeClients() (some []int) {
	for i := range d.Clients {
		if d.IntN(2) == 0 {
			some = append(some, i+1)
		}
	}
	return some
}

// Between draws a duration in whole milliseconds.
func (d *Dice) Between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(d.Int64N(int64(high-low+time.Millisecond))).Truncate(
		time.Millisecond)
}

// Of draws one of some numbers.
func (d *Dice) Of(numbers ...int) int { return numbers[d.IntN(len(numbers))] }

// What a cut does to connections.
const (
	broken = "broken" // they are reset, and new ones refused
	silent = "silent" // nothing arrives until it is healed
)

// Mode draws broken or silent.
func (d *Dice) Mode() string {
	if d.IntN(2) == 0 {
		return broken
	}
	return silent
}

func mode(name string) memnet.Mode {
	if name == broken {
		return memnet.Break
	}
	return memnet.Stall
}
