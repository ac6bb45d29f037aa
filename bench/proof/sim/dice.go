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
	// Servers, Cores and Clients are the numbers of servers, core members and clients. Servers with
	// numbers below Cores are members of the core.
	Servers, Cores, Clients int
	// Members: the members of the core change.
	Members bool
	// Wild: clocks may go beyond the configured bound.
	Wild bool
	// Alone: partitions have one replica, and no server may lose its disk.
	Alone bool
	// Epochs: leaders lose their followers and not their clients, again and again.
	Epochs bool
	// Transactions: the workloads have transactions.
	Transactions bool
	// Coordination: there are workloads of the coordination service.
	Coordination bool
	// Hasty: the election timeout is shorter than the largest difference of clocks.
	Hasty bool
}

// Target names a server by its number ("2"), or by its role when the fault begins: "core" (the
// leader of the core), "coordination" (the leader of the coordination store), "leader.5" (the
// leader of partition 5), "follower.5.1" (follower 1 of partition 5). Partitions are counted from 0
// in the order of their ids, modulo their number.
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

// Of draws one of the numbers.
func (d *Dice) Of(numbers ...int) int { return numbers[d.IntN(len(numbers))] }

// Modes of a cut.
const (
	broken = "broken" // connections are reset, and new connections are refused
	silent = "silent" // nothing arrives until the cut is healed
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
