package kv

import (
	"testing"
	"time"
)

// A server that comes back as another node is not pinged all the time for the one that it was: each
// ping opens a stream there, which fences off what the client has asked the new node.
func TestOtherNodeIsPingedRarely(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		must[Timestamp](t)(ks.Put(t.Context(), []byte("x"), nil))
		c.Nodes[2].Kill()
		c.elect(2)
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			must[Timestamp](t)(ks.Put(t.Context(), []byte(key), nil))
		}
		c.Set(func() { c.Nodes[2].As = 9 })
		c.Nodes[2].Start()
		pass(time.Second)
		before := c.RequestsOf("now")
		pass(30 * time.Second)
		if n := c.RequestsOf("now") - before; n == 0 || n > 10 {
			t.Errorf("the other node was pinged %d times in 30 s", n)
		}
		c.Set(func() { c.Nodes[2].As = 0 })
		pass(6 * time.Second)
		c.Lead(c.PartitionOf(id, "x"), 2, false) // it is used again
		must[Timestamp](t)(ks.Put(t.Context(), []byte("x"), nil))
	})
}
