package host

import (
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// idleHost is a host that takes messages in and does nothing about them.
func idleHost(t *testing.T, groups int, change func(*Config)) *Host {
	db, err := engine.OpenLog(engine.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Self: 1, Log: db, Clock: hlc.NewClock(hlc.System(), nil)}
	change(&c)
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range groups {
		identity := raftlog.Identity{Group: keys.PartitionID(100 + i), Replica: 1,
			Voters: []keys.ReplicaID{1, 2, 3}}
		if err := h.Log().Create(identity); err != nil {
			t.Fatal(err)
		}
		if _,
			err := h.Open(GroupConfig{Identity: identity, New: true,
			Hosts: map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3},
			Open: func(*Group) (group.StateMachine, error) {
				return &machine{},
					nil
			}}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func entriesFor(id keys.PartitionID, size int) *peerpb.RaftMessage {
	return &peerpb.RaftMessage{Group: uint64(id), Type: uint32(raftpb.MsgApp), From: 2, To: 1,
		Term: 5, Entries: []*peerpb.Entry{{Index: 1, Term: 5, Data: make([]byte, size)}}}
}

// TestInboxesTogetherAreBounded: what peers queue is bounded for all groups together, and what
// keeps leaders in office finds room all the same.
func TestInboxesTogetherAreBounded(t *testing.T) {
	const limit = 1 << 20
	h := idleHost(t, 100, func(c *Config) { c.MaxInboxBytes = limit })
	held := func() (bytes int64) {
		h.Groups(func(g *Group) {
			g.inbox.mu.Lock()
			defer g.inbox.mu.Unlock()
			for _, m := range g.inbox.messages {
				for _, e := range m.Entries {
					bytes += int64(len(e.Data))
				}
			}
		})
		return bytes
	}
	for range 3 {
		for i := range 100 {
			h.HandleMessages(
				2,
				&peerpb.MessageBatch{
					Messages: []*peerpb.RaftMessage{entriesFor(keys.PartitionID(100+i), 100<<10)},
				},
			)
		}
	}
	if n := held(); n > limit || n < limit/2 {
		t.Errorf("%d bytes of entries are held; the bound is %d", n, limit)
	}
	for i := range 100 {
		id := keys.PartitionID(100 + i)
		before := len(h.Group(id).inbox.messages)
		h.HandleMessages(2, &peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{{Group: uint64(id),
			Type: uint32(raftpb.MsgHeartbeat), From: 2, To: 1, Term: 5}}})
		if len(h.Group(id).inbox.messages) != before+1 {
			t.Fatalf("the heartbeat of group %s found no room", id)
		}
	}
	h.Groups(func(g *Group) { g.shutDown() })
	if n := h.inboxes.held.Load(); n != 0 {
		t.Errorf("%d bytes are counted of inboxes that are empty", n)
	}
}

// TestLargeEntryFindsRoom: a message with an entry that takes more than all inboxes may finds room
// beside others, also while these come again and again.
func TestLargeEntryFindsRoom(t *testing.T) {
	const limit, part = 1 << 20, 100 << 10
	h := idleHost(t, 12, func(c *Config) { c.MaxInboxBytes = limit })
	takes := func(group, size int) bool {
		id := keys.PartitionID(100 + group)
		before := len(h.Group(id).inbox.messages)
		h.HandleMessages(2, &peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{entriesFor(id, size)}})
		return len(h.Group(id).inbox.messages) > before
	}
	for group := range 8 {
		if !takes(group, part) {
			t.Fatalf("group %d found no room", group)
		}
	}
	if takes(10, 2*limit) {
		t.Fatal("a large entry found room where others have most of it")
	}
	for group := range 3 {
		h.Group(keys.PartitionID(100 + group)).shutDown() // what it has is dealt with
		if takes(9, part) {
			t.Error("another entry took the room that the large one waits for")
		}
	}
	if !takes(10, 2*limit) {
		t.Error("the large entry found no room beside a few others")
	}
	if takes(11, 2*limit) {
		t.Error("a second large entry found room")
	}
}

// TestEntriesWaitForTheLog: while too much waits for the log, entries of peers are dropped and
// others are taken; when it goes on, so do they.
func TestEntriesWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := idleHost(t, 2, func(c *Config) { c.MaxPendingLogBytes = 1 << 20 })
		slow, other := h.Group(100), h.Group(101)
		slow.inbox.mu.Lock() // holds the log's worker up when it reports
		index, term := uint64(1), uint64(1)
		slow.work.Add(1)
		h.log.Submit([]*raftlog.Append{{Group: slow.storage,
			Entries: []*raftpb.Entry{{Index: &index, Term: &term, Data: make([]byte, 2<<20)}},
			Context: &appended{group: slow, responses: []*raftpb.Message{{To: &term}}}}})
		if !h.LogBehind() {
			t.Error("the log is not behind")
		}
		h.HandleMessages(2, &peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{entriesFor(101,
			10),
			{Group: 101, Type: uint32(raftpb.MsgHeartbeat), From: 2, To: 1, Term: 5}}})
		if n := len(other.inbox.messages); n != 1 || len(other.inbox.messages[0].Entries) > 0 {
			t.Errorf("%d messages were taken", n)
		}
		slow.inbox.mu.Unlock()
		synctest.Wait()
		if h.LogBehind() || h.log.Pending() != 0 {
			t.Errorf("%d bytes are still pending", h.log.Pending())
		}
		h.HandleMessages(2, &peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{entriesFor(101,
			10)}})
		if n := len(other.inbox.messages); n != 2 {
			t.Errorf("%d messages were taken", n)
		}
	})
}
