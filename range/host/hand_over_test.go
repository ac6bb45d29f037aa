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

// A leader that can wait hands over to no follower that lags, whatever its host is worth; one that
// cannot wait does.
func TestSuccessorLags(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		n, term := c.awaitLeader(100)
		g, behind := n.host.Group(100), n.id%3+1
		successor := func(lag uint64) (best keys.ReplicaID) {
			found := make(chan keys.ReplicaID, 1)
			g.Successor(func(host uint64) int {
				if host == behind {
					return 2
				}
				return 1
			}, lag, func(best keys.ReplicaID, _ uint64) { found <- best })
			return <-found
		}
		if best := successor(NearlyAll); best != keys.ReplicaID(behind) {
			t.Errorf("replica %s is best while all have everything, want %d", best, behind)
		}
		// For less time than after which a host counts as silent.
		c.net.isolate(behind, true)
		for range NearlyAll + 10 {
			if err := g.Propose(term, []byte("b")); err != nil {
				t.Fatal(err)
			}
		}
		c.await("the entries", func() bool { return g.Applied() > NearlyAll+10 })
		if best := successor(NearlyAll); best == 0 || best == keys.ReplicaID(behind) {
			t.Errorf("replica %s is best; replica %d lags", best, behind)
		}
		if best := successor(AnyLag); best != keys.ReplicaID(behind) {
			t.Errorf("replica %s is best if any lag will do, want %d", best, behind)
		}
	})
}
