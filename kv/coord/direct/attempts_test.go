package direct_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A call whose time is over is known as unsent if its server could not be reached, and not if the
// server has it and does not answer.
func TestUnsentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memnet.New()
		s := &replica{}
		s.serve(t, net, "s:1")
		c := newReader(t, net, "s:1", func() []string { return []string{"s:1"} })
		for c.Server() == "" {
			if err := c.read(t, time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // virtual
		}
		unsent := func() bool {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			ctx, attempts := direct.NoteAttempts(ctx)
			if _, err := c.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")}); err == nil {
				t.Error("a call without an answer")
			}
			return attempts.Unsent()
		}
		// The search has made one of the connections, and the next call makes another one.
		net.CutBoth("c", "s", memnet.Stall)
		if !unsent() {
			t.Error("a call that could not be sent does not count as unsent")
		}
		net.Heal("c", "s")
		s.set(func(r *replica) { r.silent = true })
		if unsent() {
			t.Error("a call that the server has counts as unsent")
		}
	})
}
