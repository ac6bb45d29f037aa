package replica

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/replica/command"
)

// TestEveryWriteHasAnEvaluation: in its command, or among those that work on the lock table.
func TestEveryWriteHasAnEvaluation(t *testing.T) {
	for _, c := range command.All() {
		if c.Way != command.InQueue {
			continue
		}
		if here := lockEvaluations[c] != nil; here == (c.Evaluate != nil) {
			t.Errorf("%s: an evaluation in this package: %t; in its command: %t", c.Name, here,
				c.Evaluate != nil)
		}
	}
}
