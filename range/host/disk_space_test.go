package host

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Entries are taken while they fit with all their copies, those under way included; and a host that
// refused a message says that it has no room until that message would fit.
func TestRoomForEntries(t *testing.T) {
	h := idleHost(t, 1, func(*Config) {})
	g := h.Group(100)
	kind := uint32(raftpb.MsgApp)
	entries := &peerpb.RaftMessage{Type: kind, Entries: []*peerpb.Entry{{Data: []byte("v")}}}
	empty := &peerpb.RaftMessage{Type: kind, Entries: []*peerpb.Entry{{}}}
	takes := func(m *peerpb.RaftMessage, size int, want bool) {
		t.Helper()
		for _, e := range m.Entries {
			if len(e.Data) > 0 {
				e.Data = make([]byte, max(1, size-messageOverhead(m)-64))
			}
		}
		if got := h.disk.takes(g, m); got != want {
			t.Errorf("%d bytes are taken: %t", size, got)
		}
	}
	none := func(want bool) {
		t.Helper()
		if got := h.disk.none.Load(); got != want {
			t.Errorf("without room: %t", got)
		}
	}
	takes(entries, 1<<20, true) // nothing is known of the disk yet
	h.SetRoom(roomOf(false, Unbounded))
	takes(entries, 1<<20, true)
	h.SetRoom(roomOf(false, 1000*copies))
	none(false)
	h.SetRoom(roomOf(false, 1000*copies)) // what was taken before is in the log
	takes(entries, 600, true)
	takes(entries, 600, false)
	takes(entries, 400, true)
	takes(entries, 1, false)
	takes(empty, 1000, true)
	h.SetRoom(roomOf(false, 1500*copies))
	none(true) // 1000 may be under way still
	takes(entries, 400, true)
	h.SetRoom(roomOf(false, 1000*copies))
	none(false)
	h.SetRoom(roomOf(true, 1000*copies))
	none(true)
	takes(entries, 1000, true)
	h.SetRoom(roomOf(true, -1))
	takes(entries, 1, false)
	h.SetRoom(roomOf(false, Unbounded))
	none(false)
}

// roomOf is a disk with as much room for entries of each share.
func roomOf(none bool, bytes int64) Room {
	return Room{None: none, Bytes: [group.Shares]int64{bytes, bytes, bytes}}
}

// sharing is a state machine whose entries begin with their share.
type sharing struct{ group.StateMachine }

func (sharing) ShareOf(data []byte) group.Share { return group.Share(data[0]) }

// Of a message with more entries than there is room for, the first are taken that fit: the others
// come again. An entry uses the room of its share, and takes from that of all.
func TestRoomForSomeEntries(t *testing.T) {
	const size = 1000
	h := idleHost(t, 1, func(*Config) {})
	g := h.Group(100)
	g.machine = sharing{g.machine}
	message := func(shares ...group.Share) *peerpb.RaftMessage {
		m := &peerpb.RaftMessage{Type: uint32(raftpb.MsgApp)}
		for _, share := range shares {
			data := make([]byte, size-64)
			data[0] = byte(share)
			m.Entries = append(m.Entries, &peerpb.Entry{Data: data})
		}
		return m
	}
	const data, deletion, collection = group.NoShare, group.DeletionShare, group.CollectionShare
	for _, c := range []struct {
		room    [group.Shares]int64
		message []group.Share
		want    int
	}{
		{[...]int64{2, 2, 2}, []group.Share{data, data, data}, 2},
		{[...]int64{2, 2, 2}, []group.Share{data, data}, 2},
		{[...]int64{0, 2, 2}, []group.Share{data}, 0},
		{[...]int64{0, 1, 2}, []group.Share{deletion, deletion}, 1},
		{[...]int64{0, 1, 3}, []group.Share{collection, collection, deletion}, 2},
		{[...]int64{0, 2, 3}, []group.Share{deletion, data, deletion}, 1},
	} {
		var room Room
		for share, entries := range c.room {
			room.Bytes[share] = copies * (entries*size + 64)
		}
		h.SetRoom(room)
		h.SetRoom(room) // what was taken before is in the log
		m := message(c.message...)
		if taken := h.disk.takes(g, m); taken != (c.want > 0) || taken && len(m.Entries) != c.want {
			t.Errorf("with room for %v, of %v %d are taken (%t), want %d", c.room, c.message,
				len(m.Entries), taken, c.want)
		}
	}
}

// To a host without room a leader sends what it says that it takes, and what leads to more room.
func TestSentToHostWithoutRoom(t *testing.T) {
	h := idleHost(t, 1, func(*Config) {})
	g := h.Group(100)
	g.machine = sharing{g.machine}
	message := func(bytes int, shares ...group.Share) *peerpb.RaftMessage {
		m := &peerpb.RaftMessage{Type: uint32(raftpb.MsgApp)}
		for _, share := range shares {
			m.Entries = append(m.Entries, &peerpb.Entry{Data: append(make([]byte, 0, bytes),
				byte(share))[:bytes]})
		}
		return m
	}
	said := uint64(0)
	check := func(roomBytes uint64, m *peerpb.RaftMessage, want int) {
		t.Helper()
		said++
		h.peers.NoteStatus(2, &peerpb.HostPing{Number: said, NoRoom: true, RoomBytes: roomBytes})
		if g.withheld(2, m) != (want == 0) || len(m.Entries) != want {
			t.Errorf("%d entries are sent to a host with %d bytes of room, want %d", len(m.Entries),
				roomBytes, want)
		}
	}
	check(0, message(1000, 0, 0), 2)
	check(0, message(100_000, 0, 0), 0)
	check(150_000, message(100_000, 0, 0), 1)
	check(0, message(40_000, 0, 0), 1)
	check(0, message(40_000, 0, 1, 1), 3)
}

// While no quorum has room, entries of data are taken as long as they leave the room of deletions.
func TestRoomForEntriesUnderWay(t *testing.T) {
	const size = 1000
	h := idleHost(t, 1, func(*Config) {})
	g := h.Group(100)
	g.machine = sharing{g.machine}
	message := func(entries int, share group.Share) *peerpb.RaftMessage {
		m := &peerpb.RaftMessage{Type: uint32(raftpb.MsgApp)}
		for range entries {
			data := make([]byte, size-64)
			data[0] = byte(share)
			m.Entries = append(m.Entries, &peerpb.Entry{Data: data})
		}
		return m
	}
	room := func(entries int64) int64 { return copies * (entries*size + 64) }
	h.SetRoom(Room{None: true, UnderWay: room(2), Takes: group.DeletionShare,
		Bytes: [group.Shares]int64{room(0), room(4), room(6)}})
	h.peers.NoteStatus(2, &peerpb.HostPing{Number: 1, NoRoom: true})
	if !g.noQuorumHasRoom() {
		t.Fatal("a quorum has room")
	}
	m := message(3, group.NoShare)
	if !h.disk.takes(g, m) || len(m.Entries) != 2 {
		t.Errorf("%d entries of data are taken, want 2", len(m.Entries))
	}
	if h.disk.takes(g, message(1, group.NoShare)) {
		t.Error("an entry of data is taken from the room of deletions")
	}
	m = message(3, group.DeletionShare)
	if !h.disk.takes(g, m) || len(m.Entries) != 1 {
		t.Errorf("%d deletions are taken, want 1", len(m.Entries))
	}
}
