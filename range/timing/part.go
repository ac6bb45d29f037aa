package timing

// Part is a part of a request's time.
type Part uint8

// The parts, in the order in which a write passes them.
const (
	// Queue: the request waits for a processor, or in the queue of its partition.
	Queue Part = iota
	// Latch: the request waits for other requests of its partition: a read for writes in flight, a
	// write for room among them.
	Latch
	// Lock: the request waits for the lock of a transaction.
	Lock
	// Proof: a read waits until a quorum has confirmed its leader, or until its timestamp is closed.
	Proof
	// Evaluate: the request is evaluated. The read of the state belongs to it.
	Evaluate
	// Log: the entry of a write waits for the leader's log: for the group, and for appends before it.
	Log
	// Sync: the leader's log writes and syncs the entry.
	Sync
	// Replicate: the entry waits for a quorum: the network, and the logs of followers.
	Replicate
	// Apply: the entry is applied, after it was committed.
	Apply
	// Clock: the answer waits until every clock has passed its timestamp.
	Clock

	// Parts is the number of parts.
	Parts
)

var partNames = [Parts]string{"queue", "latch", "lock", "proof", "evaluate", "log", "sync",
	"replicate", "apply", "clock"}

// String returns the name of the part, as metrics, the slow log and traces show it.
func (p Part) String() string {
	if p < Parts {
		return partNames[p]
	}
	return "unknown"
}

// PartNamed returns the part of a name; false if there is none.
func PartNamed(name string) (Part, bool) {
	for p, known := range partNames {
		if known == name {
			return Part(p), true
		}
	}
	return 0, false
}
