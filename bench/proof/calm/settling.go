package calm

import "time"

// Kind is what a fault does to a cluster, as far as the time matters that passes until no client
// feels it any more.
type Kind int

const (
	// Links are connections that break, stand still or are slow, messages that are lost,
	// leaderships that move, and syncs that are slow.
	Links Kind = iota
	// Restarts are servers that end and start.
	Restarts
	// Replacements are servers that start with an empty disk.
	Replacements
	// Clocks are clocks that jump, drift or stand still.
	Clocks
	// Room is disks without room.
	Room
)

// What the product says about itself; docs/limits.md and docs/internals.md have these numbers.
const (
	// silence is after how long any server may give up the locks of a client that was not heard of,
	// and office how long the leader that does it must have led.
	silence, office = 3 * time.Second, 2 * time.Second
	// nodeLease is after how long without a heartbeat the core takes a node for dead, and lets
	// another one have its address.
	nodeLease = 9 * time.Second
	// quarantine is for how long a node whose clock has jumped may refuse to serve after the clock
	// is right again.
	quarantine = 30 * time.Second
	// roomEvery is how often a server looks at the room on its disk.
	roomEvery = time.Second
)

// Settling is for how long a fault is felt at most after it has ended. election is the shortest
// election timeout T of the cluster: a follower campaigns after one to two of it.
//
//	kind          settling                  why
//	Links         4 T + 2 s, at least 3 s   a follower notices within 2 T that it has no leader
//	Restarts      Links + 1 T               a server that restarted withholds its vote for T
//	Replacements  Restarts + 9 s            the lease of the node that was at the address ends
//	Clocks        Links + 30 s              a node believes a clock that jumped back after 30 s
//	Room          Links + 1 s               servers look at their disks once a second
//
// A second round, if the first was split, takes 2 T more. Locks of clients that were silent (3 s)
// are given up when the new leader has led for 2 s. Connections are made again within 0.5 s.
func Settling(kind Kind, election time.Duration) time.Duration {
	links := max(silence, 4*election+office)
	switch kind {
	case Restarts:
		return links + election
	case Replacements:
		return links + election + nodeLease
	case Clocks:
		return links + quarantine
	case Room:
		return links + roomEvery
	}
	return links
}
