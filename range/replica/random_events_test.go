package replica

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
)

func (h *history) commit(t *rapid.T) {
	h.step++
	h.leader.commit(rapid.IntRange(1, 3).Draw(t, "n"))
}

func (h *history) apply(t *rapid.T) {
	h.step++
	m := h.leader
	if rapid.Bool().Draw(t, "any") {
		m = h.draw(t, "member")
	}
	m.catchUp(rapid.IntRange(1, 6).Draw(t, "n"), rapid.IntRange(1, 3).Draw(t, "chunk"))
	h.c.settle()
}

// drop loses the oldest proposals of the leader, as Raft may; sometimes it says so.
func (h *history) drop(t *rapid.T) {
	h.step++
	if rapid.IntRange(0, 3).Draw(t, "dice") > 0 {
		t.Skip("not now")
	}
	h.leader.drop(rapid.IntRange(1, 2).Draw(t, "n"))
	h.leader.mu.Lock()
	l, left := h.leader.leadership, len(h.leader.proposed)
	h.leader.mu.Unlock()
	// With nothing behind what is lost, only the group can know.
	if left == 0 || rapid.Bool().Draw(t, "told") {
		h.leader.tell(l)
		h.c.settle()
	}
}

// elect makes a member lead. The old leader may not hear of it for a while; it has no lease then,
// and nothing it proposes is committed.
func (h *history) elect(t *rapid.T) {
	if h.leader != nil && rapid.IntRange(0, 3).Draw(t, "dice") > 0 {
		t.Skip("not now")
	}
	// Two elections in a row take longer than clocks are apart: see LeadershipChanged.
	if now := h.c.physical.Now(); h.leader == nil || now-h.elected < int64(600*time.Millisecond) {
		h.advance(300 * time.Millisecond)
	}
	h.elected = h.c.physical.Now()
	old := h.leader
	if h.stale != nil {
		h.hearOfLeader(h.stale)
	}
	if old != nil {
		// Some of what it proposed reached the voters.
		old.commit(rapid.IntRange(0, 2).Draw(t, "kept"))
		old.drop(-1)
	}
	h.leader = h.draw(t, "leader")
	h.c.mu.Lock()
	h.c.term++
	l := group.Leadership{Term: h.c.term, Leader: h.leader.id}
	h.c.log = append(h.c.log, group.Entry{Index: uint64(len(h.c.log) + 1), Term: h.c.term})
	h.c.mu.Unlock()
	for _, m := range h.c.members {
		if m == old && m != h.leader && rapid.Bool().Draw(t, "unaware") {
			h.stale, m.deposed = m, true
			continue
		}
		if m != h.leader {
			m.tell(l)
		}
	}
	h.c.settle()
	l.IsLeader = true
	h.leader.tell(l)
	h.c.settle()
}

func (h *history) hearOfLeader(m *member) {
	h.stale, m.deposed = nil, false
	m.drop(-1)
	m.failReadsOnce(errors.New("not leader"))
	m.tell(group.Leadership{Term: h.c.term, Leader: h.leader.id})
	h.c.settle()
}

// lease changes whether the leader holds its lease; a stale leader never does.
func (h *history) lease(t *rapid.T) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.step++
	h.c.lease = rapid.IntRange(0, 2).Draw(t, "lease") > 0
}

// confirm answers what waits for a read index.
func (h *history) confirm(t *rapid.T) {
	h.step++
	if h.stale != nil && rapid.Bool().Draw(t, "stale") {
		h.hearOfLeader(h.stale)
		return
	}
	if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
		h.leader.failReadsOnce(errors.New("timeout"))
	} else {
		h.leader.catchUp(-1)
		h.leader.failReadsOnce(nil)
	}
	h.c.settle()
}

// failReadsOnce answers what waits for a read index now, and not what comes of it.
func (m *member) failReadsOnce(err error) {
	m.mu.Lock()
	reads := m.reads
	m.reads = nil
	m.mu.Unlock()
	for _, done := range reads {
		done(err)
	}
}

// crash restarts a follower, which loses what it has not flushed; sometimes it had been told to
// flush.
func (h *history) crash(t *rapid.T) {
	h.step++
	m := h.draw(t, "member")
	if m == h.leader || m == h.stale || rapid.IntRange(0, 2).Draw(t, "dice") > 0 {
		t.Skip("not now")
	}
	if rapid.Bool().Draw(t, "flush") {
		if err := m.state.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	crashed := m.fs.CrashClone(vfs.CrashCloneCfg{})
	before, _ := m.replica.Applied()
	durable, err := m.replica.DurableApplied()
	if err != nil {
		t.Fatal(err)
	}
	l := m.leadership
	m.close()
	m.fs = crashed
	m.open(len(h.c.members))
	m.tell(l)
	if after, _ := m.replica.Applied(); after < durable || after > before {
		t.Fatalf("replica %s: applied %d, durable %d before the crash, %d after it", m.id, before,
			durable, after)
	}
}

func (h *history) snapshot(t *rapid.T) {
	h.step++
	from, to := h.draw(t, "from"), h.draw(t, "to")
	there, _ := to.replica.Applied()
	if here, _ := from.replica.Applied(); here <= there || to == h.leader || to == h.stale {
		t.Skip("nothing to send")
	}
	if err := transfer(from, to); err != nil {
		t.Fatal(err)
	}
}

// collect has the leader collect garbage, to the end.
func (h *history) collect(t *rapid.T) {
	h.step++
	if rapid.IntRange(0, 3).Draw(t, "dice") > 0 || !h.leader.replica.Serving() {
		t.Skip("not now")
	}
	h.c.mu.Lock()
	h.c.auto = true
	h.c.mu.Unlock()
	h.leader.commit(-1)
	h.leader.catchUp(-1)
	h.c.settle()
	r := h.leader.replica
	r.GC().SetKept(time.Duration(rapid.IntRange(0, 2000).Draw(t, "window"))*time.Millisecond,
		hlc.Timestamp{})
	if _, err := r.GC().Collect(context.Background(),
		hlc.Timestamp{Wall: h.leader.Now()}); err != nil &&
		!errors.Is(err, eval.ErrNotLeader) && !errors.Is(err, eval.ErrOverloaded) &&
		!errors.Is(err, eval.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	h.c.mu.Lock()
	h.c.auto = false
	h.c.mu.Unlock()
	h.c.settle()
}
