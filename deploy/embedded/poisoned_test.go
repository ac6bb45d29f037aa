package embedded

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// poison puts a hard state into the log of the core's member, as a version that believed every
// message would have done.
func poison(t *testing.T, fs vfs.FS, term uint64) {
	t.Helper()
	db, err := engine.OpenLog(engine.Options{FS: fs, Dir: "dir/core/log"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	log, err := raftlog.Open(db,
		raftlog.Options{OnAppended: func(_ []*raftlog.Append, err error) { done <- err }})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := log.Identities()
	// The coordination store may have its log already.
	i := slices.IndexFunc(ids,
		func(id raftlog.Identity) bool { return id.Group == keys.CorePartition })
	if err != nil || i < 0 {
		t.Fatal(ids, err)
	}
	g, err := log.OpenGroup(ids[i], func() raftlog.Applied { return raftlog.Applied{} })
	if err != nil {
		t.Fatal(err)
	}
	log.Submit([]*raftlog.Append{{Group: g, HardState: &raftpb.HardState{Term: &term}}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	log.Close()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAPoisonedMemberOfTheCore: a member whose term cannot be is left alone and says so; its server
// goes on, and does not end each time it is started.
func TestAPoisonedMemberOfTheCore(t *testing.T) {
	fs := vfs.NewMem()
	synctest.Test(t, func(t *testing.T) { runOnce(t, fs, func() {}) })
	poison(t, fs, math.MaxUint64-1)
	synctest.Test(t, func(t *testing.T) {
		s, err := StartServer(t.Context(), onlyServer(fs))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ready, reason := s.Ready()
		if ready || !strings.Contains(reason, "does not open") ||
			!strings.Contains(reason, "18446744073709551614") {
			t.Errorf("ready %t: %s", ready, reason)
		}
		if err := s.Err(); err != nil {
			t.Errorf("the server ended: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
