package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// maxSnapshots bounds the snapshots that a host sends at a time: each keeps old data from being collected.
const maxSnapshots = 4

// sendSnapshot streams the state to a follower, together with the message by which Raft offers it. What Raft put into
// the message is corrected to the index that the state really has.
func (h *Host) sendSnapshot(g *Group, m *peerpb.RaftMessage) {
	to := replicaID(m.GetTo())
	report := func(ok bool) { g.do(func(g *Group) { g.core.SnapshotSent(to, ok) }) }
	target := g.hosts[to]
	if target == 0 || h.ctx.Err() != nil {
		report(false)
		return
	}
	select {
	case h.snapshotSlots <- struct{}{}:
	default:
		// Enough are on their way; Raft asks again with the follower's next answer to a heartbeat.
		report(false)
		return
	}
	g.work.Add(1)
	h.tasks.Add(1)
	go func() {
		defer h.tasks.Done()
		defer g.work.Done()
		defer func() { <-h.snapshotSlots }()
		err := h.streamSnapshot(g, target, m)
		if err != nil && h.ctx.Err() == nil {
			h.metrics.snapshotsFailed.Inc()
			h.config.Logger.Warn("sending a snapshot failed; it will be tried again", "partition", g.id, "to", target, "error", err)
		}
		report(err == nil)
	}()
}

func (h *Host) streamSnapshot(g *Group, target uint64, m *peerpb.RaftMessage) error {
	snap, err := g.machine.Snapshot()
	if err != nil {
		return fmt.Errorf("taking a snapshot of partition %s: %w", g.id, err)
	}
	defer snap.Close()
	if snap.Index() < m.GetSnapshot().GetIndex() {
		return fmt.Errorf("the snapshot of partition %s is of index %d, older than %d", g.id, snap.Index(), m.GetSnapshot().GetIndex())
	}
	m.Snapshot.Index, m.Snapshot.Term = snap.Index(), snap.Term()
	err = h.transport.SendSnapshot(h.ctx, target, &peerpb.SnapshotHeader{Message: m}, func(w io.Writer) error {
		return snap.Write(h.ctx, w)
	})
	if err == nil {
		h.metrics.snapshotsSent.Inc()
	}
	return err
}

// HandleSnapshot receives a snapshot: it is staged, and then Raft decides whether it wants it.
func (h *Host) HandleSnapshot(ctx context.Context, from uint64, header *peerpb.SnapshotHeader, r io.Reader) error {
	m := header.GetMessage()
	if m == nil || raftpb.MessageType(m.GetType()) != raftpb.MsgSnap || m.GetSnapshot().GetIndex() == 0 {
		return errors.New("a snapshot without its message")
	}
	g := h.Group(keys.PartitionID(m.GetGroup()))
	if g == nil {
		return fmt.Errorf("partition %d is not on this node", m.GetGroup())
	}
	if !g.addressed(from, m) {
		return fmt.Errorf("partition %s: the snapshot is not for this replica, or not from one of its peers", g.id)
	}
	staged, err := g.machine.StageSnapshot(ctx, m.GetSnapshot().GetIndex(), m.GetSnapshot().GetTerm(), r)
	if err != nil {
		return fmt.Errorf("receiving a snapshot of partition %s: %w", g.id, err)
	}
	// Only the end of the stream proves it whole.
	if n, err := io.Copy(io.Discard, r); err != nil || n > 0 {
		staged.Discard()
		return fmt.Errorf("receiving a snapshot of partition %s: %d bytes behind its end: %w", g.id, n, errors.Join(err, io.ErrUnexpectedEOF))
	}
	var old group.Staged
	if !g.put(func(in *inbox) {
		old, in.staged = in.staged, &stagedAt{staged, m.GetSnapshot().GetIndex()}
		in.messages = append(in.messages, m)
	}) {
		staged.Discard()
		return ErrStopped
	}
	if old != nil {
		old.Discard()
	}
	h.metrics.snapshotsReceived.Inc()
	return nil
}

// stagedAt remembers the index a staged snapshot is of.
type stagedAt struct {
	group.Staged
	index uint64
}

// takeStaged hands over the staged snapshot of an index, if it is there.
func (g *Group) takeStaged(index uint64) group.Staged {
	g.inbox.mu.Lock()
	defer g.inbox.mu.Unlock()
	s, ok := g.inbox.staged.(*stagedAt)
	if !ok || s.index != index {
		return nil
	}
	g.inbox.staged = nil
	return s.Staged
}

// discardStaged drops a staged snapshot that Raft did not want: it had its message in this pass.
func (g *Group) discardStaged(messages []*peerpb.RaftMessage) {
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgSnap {
			continue
		}
		if s := g.takeStaged(m.GetSnapshot().GetIndex()); s != nil {
			s.Discard()
		}
	}
}

// installation is a snapshot that Raft accepted, and the append that makes the log follow it.
//
// INVARIANT: appends get to the log in the order in which Raft gave them out. An entry behind a snapshot that is not in the log yet
// would be acknowledged, and then be deleted with all that the snapshot replaces.
type installation struct {
	staged group.Staged
	append *raftlog.Append
	// held are the appends that came behind the snapshot, and before the next one. Of the shard worker alone.
	held []*raftlog.Append
}

// install queues the installation behind everything that is still being applied; false if there is nothing to install, and the group failed.
func (g *Group) install(a *raftlog.Append) bool {
	staged := g.takeStaged(a.Snapshot.Index)
	if staged == nil {
		g.fail(fmt.Errorf("raft accepted a snapshot of index %d that was never received", a.Snapshot.Index))
		return false
	}
	in := &installation{staged: staged, append: a}
	g.steps.installations = append(g.steps.installations, in)
	g.work.Add(2) // the append and the task
	g.enqueueTask(task{install: in})
	return true
}

// runInstall runs on an apply worker. The state is durable before the log lets go of what came before it: after a crash
// between the two, opening the log finds a state that is ahead, and follows it.
func (g *Group) runInstall(in *installation) {
	a := in.append
	if err := in.staged.Install(); err != nil {
		g.failTask(fmt.Errorf("installing the snapshot of index %d: %w", a.Snapshot.Index, err))
		return
	}
	g.host.metrics.snapshotsInstalled.Inc()
	g.host.config.Logger.Info("installed a snapshot", "partition", g.id, "replica", g.self, "index", a.Snapshot.Index)
	g.replacing.Add(1)
	g.setApplied(a.Snapshot.Index, a.Snapshot.Term)
	g.do(func(g *Group) { g.installed(in) })
}

// installed lets the log follow the oldest snapshot, and have what came behind that, up to the next one. It runs on the shard worker.
// Snapshots are installed in the order in which they were accepted; where one could not be, the group has stopped before it
// comes to the next.
func (g *Group) installed(in *installation) {
	if len(g.steps.installations) == 0 || g.steps.installations[0] != in {
		g.fail(fmt.Errorf("the snapshot of index %d was installed out of its turn", in.append.Snapshot.Index))
		return
	}
	g.steps.installations = slices.Delete(g.steps.installations, 0, 1)
	g.shard.appends = append(g.shard.appends, in.append)
	g.shard.appends = append(g.shard.appends, in.held...)
}
