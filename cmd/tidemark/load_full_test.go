package main

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A load that ends because disks are full says so, also if the answer to an attempt before was lost
// when they became full.
func TestALoadIntoFullDisksSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakeserver.Start(t, 3)
		defer c.Close()
		c.AddKeyspace("k", 2)
		client, err := kv.Open(t.Context(), c.Endpoints(), kv.Dialer(c.Dialer("client")))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		to := keyspaceDestination{client.Keyspace("k"), nil}
		batch := []records.Record{{Key: []byte("a"), Value: []byte("1")}}
		if err := to.Commit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		writes := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if !fakeserver.IsWrite(r) || r.Term == 0 {
				return fakeserver.Fault{}
			}
			if writes++; writes == 1 {
				return fakeserver.Fault{Unknown: true}
			}
			return fakeserver.Fault{Code: kvpb.ErrorCode_DISK_FULL}
		})
		err = to.Commit(t.Context(), batch)
		if !errors.Is(err, kv.ErrDiskFull) || errors.Is(err, kv.ErrOutcomeUnknown) ||
			exit.Code(t.Context(), err) != exit.Unavailable {
			t.Errorf("the disks are full, and the load ends with %v, exit code %d", err,
				exit.Code(t.Context(), err))
		}
		c.Play(nil)
	})
}
