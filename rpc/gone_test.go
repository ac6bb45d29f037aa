package rpc

import (
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A client is gone when its last stream has ended, and not before.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll})
		dialer := n.dialer(t, "c")
		check := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if gone := server.Gone(1); gone != want {
				t.Errorf("%s: gone %t, want %t", when, gone, want)
			}
		}
		check("before it has come", true)
		older, endOlder := openConn(t, dialer, "s:1")
		newer, endNewer := openConn(t, dialer, "s:1")
		for i, s := range []byHand{older, newer} {
			if err := s.Send(&kvpb.BatchRequest{Hello: hello(1, uint64(i+1))}); err != nil {
				t.Fatal(err)
			}
			check("with an open stream", false)
		}
		endOlder()
		check("with another open stream", false)
		endNewer()
		check("without streams", true)
	})
}
