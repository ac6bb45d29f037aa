package server

import (
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// knows has the servers at these addresses say that they keep a coordination store.
func (c *core) knows(addresses ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range addresses {
		c.hellos[a].Coordination = true
	}
}

// founding is the record as the last member of the core has it.
func (c *core) founding() *storepb.Members {
	c.t.Helper()
	m, err := membership.CoordinationFounding(c.members[len(c.members)-1].store)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func replicasOf(m *storepb.Members) (list []uint64) {
	for _, x := range m.GetMembers() {
		list = append(list, x.Replica)
	}
	return list
}

// The coordination store is founded with the members of the core as soon as all of them know of it,
// and what they are later changes the record no more.
func TestCoordinationIsFoundedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.knows("core1:1", "core2:1")
		time.Sleep(time.Minute)
		if m := c.founding(); m != nil {
			t.Fatalf("one does not know of it, and it is founded with %v", m)
		}
		c.knows("core3:1")
		c.await("it is founded", func() bool { return c.founding() != nil })
		if m := c.founding(); m.Version != 0 || !slices.Equal(replicasOf(m), []uint64{1, 2, 3}) {
			t.Fatalf("founded with %v", m)
		}
		before := c.founding().String()
		c.elect(c.members[1])
		c.await("the next leader serves", func() bool { return ask(client, time.Second) == nil })
		time.Sleep(time.Minute)
		if after := c.founding().String(); after != before {
			t.Errorf("the record was %s, and is %s", before, after)
		}
	})
}

// It is not founded while the members change, but with what they are then.
func TestCoordinationIsFoundedBetweenChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.offers("new:1", 104)
		c.mu.Lock()
		c.lagging[4] = true
		c.mu.Unlock()
		c.serves(client)
		if err := c.change(client, "new:1", "core1:1"); err != nil {
			t.Fatal(err)
		}
		c.knows("core1:1", "core2:1", "core3:1", "new:1")
		time.Sleep(time.Minute)
		if m := c.founding(); m != nil {
			t.Fatalf("founded in the middle of a change, with %v", m)
		}
		c.mu.Lock()
		c.lagging[4] = false
		c.mu.Unlock()
		c.await("it is founded", func() bool { return c.founding() != nil })
		m := c.founding()
		if !slices.Equal(replicasOf(m), []uint64{2, 3, 4}) ||
			m.Version != c.members[0].store.Members().Version || m.Version == 0 {
			t.Errorf("founded with %v", m)
		}
	})
}
