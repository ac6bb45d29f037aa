package host

import (
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A leader proposes its last entry, and then hands over: the successor has the entry, also if the
// shard is at work meanwhile and finds both at once.
func TestWhatIsProposedBeforeAHandOverIsInTheLog(t *testing.T) {
	for _, busy := range []bool{false, true} {
		simulate(t, func(t *testing.T, c *cluster) {
			c.create(100)
			c.propose(100, "a")
			n, term := c.awaitLeader(100)
			g := n.host.Group(100)
			to := n.id%3 + 1
			entered, release := make(chan struct{}), make(chan struct{})
			if busy {
				go g.do(func(*Group) { close(entered); <-release })
				<-entered
			}
			if err := g.Propose(term, []byte("closed")); err != nil {
				t.Fatal(err)
			}
			g.TransferLeader(term, keys.ReplicaID(to))
			close(release)
			c.await("the transfer", func() bool {
				l, now := c.leader(100)
				return l != nil &&
					now > term
			})
			c.propose(100, "b")
			_, values, _ := c.hosts[to].machines[100].state()
			if !slices.Contains(values, "closed") {
				t.Errorf("the shard is busy: %t; the successor has applied %q, without what was "+
					"proposed before the hand-over", busy, values)
			}
		})
	}
}
