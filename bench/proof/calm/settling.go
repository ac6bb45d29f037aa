package calm

import "time"

// Kind groups faults by the time that passes until the fault has no effect on clients any more.
type Kind int

const (
	// Links are connections that break, stall or are slow, lost messages, transfers of leaderships,
	// and slow syncs.
	Links Kind = iota
	// Restarts are servers that end and start.
	Restarts
	// Replacements are servers that start with an empty disk.
	Replacements
	// Clocks are clocks that jump, drift or stand still.
	Clocks
	// Room is disks without free space.
	Room
)

// These are properties of the product. docs/limits.md and docs/internals.md have the numbers.
const (
	// silence is the time without a sign of a client after which a server may release the client's
	// locks. office is the time for which the leader that releases the locks must have led.
	silence, office = 3 * time.Second, 2 * time.Second
	// nodeLease is the time without a heartbeat after which the core considers a node dead. Then
	// another node may use the address.
	nodeLease = 9 * time.Second
	// quarantine is the time for which a node whose clock has jumped may refuse to serve after the
	// clock is right again.
	quarantine = 30 * time.Second
	// roomEvery is the interval at which a server checks the free space on its disk.
	roomEvery = time.Second
)

// Settling returns the longest time for which a fault may have effects after its end. election is
// the shortest election timeout T of the cluster: a follower campaigns after one to two T.
//
//	kind          settling                  why
//	Links         4 T + 2 s, at least 3 s   a follower notices within 2 T that it has no leader
//	Restarts      Links + 1 T               a server that restarted withholds its vote for T
//	Replacements  Restarts + 9 s            the lease of the node that was at the address ends
//	Clocks        Links + 30 s              a node believes a clock that jumped back after 30 s
//	Room          Links + 1 s               servers look at their disks once a second
//
// If the votes of the first election were split, a second election takes 2 T more. Locks of silent
// clients (3 s) are released when the new leader has led for 2 s. Connections are made again within
// 0.5 s.
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
