package server

import (
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestTwoMovesToOneAddress: of two members that are moved to one address at a time, one is refused.
func TestTwoMovesToOneAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.mu.Lock()
		c.helloTakes = 10 * time.Millisecond
		delete(c.hellos, "core2:1")
		delete(c.hellos, "core3:1")
		c.mu.Unlock()
		var errs [2]error
		var moves sync.WaitGroup
		for i, id := range []string{"2", "3"} {
			moves.Go(func() {
				_, errs[i] = client.ChangeCore(t.Context(),
					&clusterpb.ChangeCoreRequest{Move: id, MoveTo: "new:1"})
			})
		}
		moves.Wait()
		taken := 0
		for _, err := range errs {
			if membership.RefusalOf(err) == clusterpb.CoreRefusal_ADDRESS_TAKEN {
				taken++
			} else if err != nil {
				t.Error(err)
			}
		}
		at := 0
		for _, m := range c.members[0].store.Members().Members {
			if m.Address == "new:1" {
				at++
			}
		}
		if taken != 1 || at != 1 {
			t.Errorf("%d members are there, and %d were refused", at, taken)
		}
	})
}
