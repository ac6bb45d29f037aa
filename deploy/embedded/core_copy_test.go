package embedded

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// TestACopiedCoreMemberDoesNotStart: a copy of a core member's directory, on another machine, would
// vote with the same voice twice. It ends as long as the member answers, and takes its place when
// that is stopped.
func TestACopiedCoreMemberDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		network := memnet.New()
		at := func(fs vfs.FS, host string) *Server {
			t.Helper()
			config := onlyServer(fs)
			config.Listen, config.NewListener = host+":7400", network.Listen
			config.Dial, config.Roles, config.anyRole = network.Dialer(host), nil, true
			s, err := StartServer(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		disk := vfs.NewCrashableMem()
		first := at(disk, "127.0.0.1")
		if err := first.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		copied := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100,
			RNG: rand.New(rand.NewPCG(1, 1))})
		second := at(copied, "127.0.0.2")
		if err := second.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), "a copy of it") {
			t.Errorf("the copy: %v", err)
		}
		if err := second.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := first.Close(ctx); err != nil {
			t.Error(err)
		}
		// It has no roles and is in no list: its directory says that it is a member.
		third := at(copied.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100,
			RNG: rand.New(rand.NewPCG(1, 1))}), "127.0.0.3")
		if err := third.WaitReady(ctx); err != nil || !third.CoreMember() {
			t.Errorf("the member that has moved: %v", err)
		}
		if err := third.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}
