package server

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestUnheardMembers: a member that did not answer since this one was started is named and counted,
// until another one has told of it; one of an older version is named.
func TestUnheardMembers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.serves(client)
		expect := func(unheard, older string) {
			t.Helper()
			c.await("unheard "+unheard+", older "+older, func() bool {
				u, o := c.members[0].server.membership.Versions().Unknowing()
				gauges := gaugesOf(t, c.members[0], "tidemark_core_members_")
				return strings.Join(u, " ") == unheard && strings.Join(o, " ") == older &&
					gauges["version_unknown"] == float64(len(u))
			})
		}
		expect("", "core1:1 core2:1 core3:1")
		c.says("core1:1", newest)
		c.neverAnswered(3, "core3:1")
		expect("core3:1", "core2:1")
		c.says("core2:1", func(h *clusterpb.BootstrapHello) {
			newest(h)
			h.MembersVersion = c.members[0].store.Members().GetVersion()
			h.MembersCommands = store.NewestFormat
		})
		expect("", "")
	})
}
