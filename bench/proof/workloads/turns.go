package workloads

import (
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
)

// A transaction with commit wait keeps its locks until its commit has waited for the clocks. So
// those that want the same keys commit one after the other, half a second each. In calm, too: the
// product promises that an older transaction goes before a younger one, and no time.
const (
	// longestWait is about how long a commit waits for the clocks: by how much those of the
	// simulated cluster differ at most, 240 ms, and the bound, 250 ms. Over clocks that agree it is
	// the bound.
	longestWait = 500 * time.Millisecond
	// mostTurns is for about how many such commits, its own among them, a transaction of the
	// standard workloads may have to wait. Each of the five other clients may have an older
	// transaction. For each of four keys a younger one, which has the lock and commits already, may
	// come first. (An attempt that has to run again keeps its age.)
	mostTurns = 5 + 4 + 1
)

// leastOf is how long unhurried transactions may take at least over a database that claims this:
// with strict serialisability their commits may wait for the clocks.
func leastOf(claim isolation.Options) time.Duration {
	if claim.Level == isolation.StrictSerialisable {
		return mostTurns * longestWait
	}
	return 0
}
