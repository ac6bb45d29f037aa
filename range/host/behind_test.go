package host

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The replicas on a host that was away count as behind until they have caught up, also if their
// group has fallen asleep meanwhile; and those of a group that sleeps with everything never do.
func TestBehind(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100, 101)
		leader, _ := c.awaitLeader(100)
		other := uint64(1)
		if leader.id == other {
			other = 2
		}
		var behind Behind
		look := func() []HostCount {
			behind.Next(leader.host)
			time.Sleep(time.Second) // virtual: the shards answer
			return behind.Next(leader.host)
		}
		asleep := func() bool { return leader.host.Awake() == 0 }
		c.await("all to sleep", asleep)
		if got := look(); len(got) > 0 {
			t.Errorf("all have everything, and it counts %v", got)
		}
		if got := leader.host.peers.Silent(); len(got) > 0 {
			t.Errorf("all answer, and %v are silent", got)
		}
		c.net.isolate(other, true)
		c.await("the host to be silent", func() bool { return leader.host.peers.Down(other) })
		if got := leader.host.peers.Silent(); !slices.Equal(got, []uint64{other}) {
			t.Errorf("%v are silent, not %d", got, other)
		}
		leader.host.Group(100).Wake()
		_, term := c.awaitLeader(100)
		last := ""
		for i := range 2 * NearlyAll {
			last = fmt.Sprint(i)
			if err := leader.host.Group(100).Propose(term, []byte(last)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // virtual: an entry each
		}
		c.await("all to sleep without it", asleep)
		if got := look(); !slices.Equal(got, []HostCount{{other, 1}}) && !slices.Equal(got,
			[]HostCount{{other, 2}}) {
			t.Errorf("host %d is away, and it counts %v", other, got)
		}
		c.net.isolate(other, false)
		c.await("the host to be back", func() bool { return !leader.host.peers.Down(other) })
		c.await("its replica to have everything", func() bool {
			return c.everywhere(100, last)
		})
		if got := look(); len(got) > 0 {
			t.Errorf("all have everything again, and it counts %v", got)
		}
	})
}
