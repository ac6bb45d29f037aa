package workloads

import (
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
)

// A transaction with commit wait keeps its locks until its commit has waited for the clocks. So
// transactions that want the same keys commit one after the other, half a second each, also in
// calm. The product promises that an older transaction goes before a younger one, and promises no
// time.
const (
	// longestWait is about how long a commit waits for the clocks: the largest difference of clocks
	// in the simulated cluster, 240 ms, plus the bound, 250 ms. If clocks agree, a commit waits for
	// the bound only.
	longestWait = 500 * time.Millisecond
	// mostTurns is the number of such commits, its own among them, that a transaction of the
	// standard workloads may have to wait for. Each of the five other clients may have an older
	// transaction. For each of four keys, a younger transaction that has the lock and already
	// commits may come first. (An attempt that has to run again keeps its age.)
	mostTurns = 5 + 4 + 1
)

// leastOf returns the shortest deadline of a transaction without hurry. Over a database that claims
// strict serialisability, commits may wait for the clocks.
func leastOf(claim isolation.Options) time.Duration {
	if claim.Level == isolation.StrictSerialisable {
		return mostTurns * longestWait
	}
	return 0
}
