package host

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Entries are taken while they fit with all their copies, those under way included; and a host that
// refused a message says that it has no room until that message would fit.
func TestRoomForEntries(t *testing.T) {
	h := idleHost(t, 1, func(*Config) {})
	kind := uint32(raftpb.MsgApp)
	entries := &peerpb.RaftMessage{Type: kind, Entries: []*peerpb.Entry{{Data: []byte("v")}}}
	empty := &peerpb.RaftMessage{Type: kind, Entries: []*peerpb.Entry{{}}}
	takes := func(m *peerpb.RaftMessage, size int, want bool) {
		t.Helper()
		if got := h.room.takes(m, size); got != want {
			t.Errorf("%d bytes are taken: %t", size, got)
		}
	}
	none := func(want bool) {
		t.Helper()
		if got := h.room.none.Load(); got != want {
			t.Errorf("without room: %t", got)
		}
	}
	takes(entries, 1<<40, true) // nothing is known of the disk yet
	h.SetRoom(false, Unbounded)
	takes(entries, 1<<40, true)
	h.SetRoom(false, 1000*copies)
	none(false)
	h.SetRoom(false, 1000*copies) // what was taken before is in the log
	takes(entries, 600, true)
	takes(entries, 600, false)
	takes(entries, 400, true)
	takes(entries, 1, false)
	takes(empty, 1000, true)
	h.SetRoom(false, 1500*copies)
	none(true) // 1000 may be under way still
	takes(entries, 400, true)
	h.SetRoom(false, 1000*copies)
	none(false)
	h.SetRoom(true, 1000*copies)
	none(true)
	takes(entries, 1000, true)
	h.SetRoom(true, -1)
	takes(entries, 1, false)
	h.SetRoom(false, Unbounded)
	none(false)
}
