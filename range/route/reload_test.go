package route_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/range/route"
)

// A table that takes long to come is not given up because a fresh one is asked for meanwhile.
func TestReloadLetsATableArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeserver.Start(t, 1)
		defer c.Close()
		c.AddKeyspace("fruit", 4)
		c.Network.SetLatency(c.Nodes[1].Host, "client", 700*time.Millisecond)
		s, err := route.New(route.Config{Endpoints: c.Endpoints(), Dial: c.Dialer("client")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for began := time.Now(); s.Table().Cluster == 0; {
			if time.Since(began) > 30*time.Second {
				t.Fatal("the table has not come")
			}
			time.Sleep(100 * time.Millisecond) // virtual
			s.ReloadTable()
		}
	})
}
