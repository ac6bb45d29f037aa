package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// maxSnapshots bounds the snapshots that a host sends at a time: each keeps old data from being
// collected.
const maxSnapshots = 4

// maxStaged bounds the snapshots that a group keeps until they are installed or refused: each takes
// the space of a partition. There is one that is being installed, one that follows it, and one of a
// former leader.
const maxStaged = 3

// snapshotStall is how long the peer may take nothing of a snapshot before its stream is given up.
// It then is tried again; others have its slot meanwhile.
const snapshotStall = time.Minute

var errSnapshotStalled = fmt.Errorf("the peer took nothing of it for %s", snapshotStall)

// sendSnapshot streams the state to a follower, together with the message by which Raft offers it.
// What Raft put into the message is corrected to the index that the state really has.
func (h *Host) sendSnapshot(g *Group, m *peerpb.RaftMessage) {
	to := replicaID(m.GetTo())
	report := func(ok bool) { g.do(func(g *Group) { g.core.SnapshotSent(to, ok) }) }
	target := g.HostOf(to)
	if target == 0 || g.ctx.Err() != nil || !g.mayTry(to) {
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
	g.keepFrom(to, m.GetSnapshot().GetIndex())
	g.work.Add(1)
	h.tasks.Add(1)
	go func() {
		defer h.tasks.Done()
		defer g.work.Done()
		defer func() { <-h.snapshotSlots }()
		err := h.streamSnapshot(g, target, m)
		if err != nil && g.ctx.Err() == nil {
			h.metrics.snapshotsFailed.Inc()
			h.config.Logger.Warn("sending a snapshot failed; it will be tried again", "partition",
				g.id, "to", target, "error", err)
		}
		g.do(func(g *Group) { g.sent(to, err == nil); g.tried(to, err == nil) })
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
		return fmt.Errorf("the snapshot of partition %s is of index %d, older than %d", g.id,
			snap.Index(), m.GetSnapshot().GetIndex())
	}
	m.Snapshot.Index, m.Snapshot.Term = snap.Index(), snap.Term()
	if c, ok := snapshotConfiguration(snap); ok {
		// It is of that index, too: a configuration that is newer than the state would count votes
		// that the state knows nothing of.
		if m.Snapshot.ConfState, err = proto.Marshal(c.ConfState()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(g.ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(snapshotStall, func() { cancel(errSnapshotStalled) })
	defer stalled.Stop()
	err = h.transport.SendSnapshot(ctx, target, &peerpb.SnapshotHeader{Message: m},
		func(w io.Writer) error {
			return snap.Write(ctx, progressWriter{w, stalled})
		})
	if err != nil {
		if context.Cause(ctx) == errSnapshotStalled {
			return fmt.Errorf("%w: %w", errSnapshotStalled, err)
		}
		return err
	}
	h.metrics.snapshotsSent.Inc()
	return nil
}

// progressWriter puts a timer off whenever something was taken.
type progressWriter struct {
	io.Writer
	stalled *time.Timer
}

func (w progressWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err == nil {
		w.stalled.Reset(snapshotStall)
	}
	return n, err
}

// HandleSnapshot receives a snapshot: it is staged, and then Raft decides whether it wants it.
func (h *Host) HandleSnapshot(ctx context.Context, from uint64, header *peerpb.SnapshotHeader,
	r io.Reader) error {
	m := header.GetMessage()
	if m == nil || raftpb.MessageType(m.GetType()) != raftpb.MsgSnap ||
		m.GetSnapshot().GetIndex() == 0 {
		return errors.New("a snapshot without its message")
	}
	g := h.Group(keys.PartitionID(m.GetGroup()))
	if g == nil {
		return fmt.Errorf("partition %d is not on this node", m.GetGroup())
	}
	if !g.addressed(from, m) {
		return fmt.Errorf("partition %s: the snapshot is not for this replica, or not from one "+
			"of its peers", g.id)
	}
	if why := g.core.WellFormed(m); why != "" {
		h.refused(g, m, why)
		return fmt.Errorf("partition %s: the message of the snapshot cannot be: %s", g.id, why)
	}
	g.inbox.mu.Lock()
	full := g.inbox.fullOfSnapshots()
	g.inbox.mu.Unlock()
	if full {
		return errTooManySnapshots(g.id)
	}
	staged, err := g.machine.StageSnapshot(ctx, m.GetSnapshot().GetIndex(),
		m.GetSnapshot().GetTerm(), r)
	if err != nil {
		return fmt.Errorf("receiving a snapshot of partition %s: %w", g.id, err)
	}
	if err := checkConfiguration(staged, m); err != nil {
		staged.Discard()
		return fmt.Errorf("receiving a snapshot of partition %s: %w", g.id, err)
	}
	// Only the end of the stream proves it whole.
	if n, err := io.Copy(io.Discard, r); err != nil || n > 0 {
		staged.Discard()
		return fmt.Errorf("receiving a snapshot of partition %s: %d bytes behind its end: %w", g.id,
			n, errors.Join(err, io.ErrUnexpectedEOF))
	}
	if !g.put(func(in *inbox) {
		if full = in.fullOfSnapshots(); full {
			return
		}
		in.staged = append(in.staged, stagedWith{staged, m})
		in.messages = append(in.messages, m)
	}) {
		staged.Discard()
		return ErrStopped
	}
	if full {
		staged.Discard()
		return errTooManySnapshots(g.id)
	}
	h.metrics.snapshotsReceived.Inc()
	return nil
}

func errTooManySnapshots(id keys.PartitionID) error {
	return fmt.Errorf("partition %s: there are %d snapshots already that are not installed yet", id,
		maxStaged)
}

// fullOfSnapshots says whether the group can keep no further snapshot.
func (in *inbox) fullOfSnapshots() bool { return len(in.staged)+in.installing >= maxStaged }

// stagedWith remembers the message that a staged snapshot came with. It stays until Raft has had
// that message: another stream for the same group, of a former leader for one, may end at any
// moment.
type stagedWith struct {
	group.Staged
	message *peerpb.RaftMessage
}

// takeStaged hands over a staged snapshot that fits, if there is one.
func (in *inbox) takeStaged(fits func(*peerpb.RaftMessage) bool) group.Staged {
	for i, s := range in.staged {
		if fits(s.message) {
			in.staged = slices.Delete(in.staged, i, i+1)
			return s.Staged
		}
	}
	return nil
}

// takeForInstall hands over the staged snapshot of an index, nil if it is not there. It counts
// until it is installed.
func (g *Group) takeForInstall(index uint64) group.Staged {
	g.inbox.mu.Lock()
	defer g.inbox.mu.Unlock()
	s := g.inbox.takeStaged(
		func(m *peerpb.RaftMessage) bool { return m.GetSnapshot().GetIndex() == index },
	)
	if s != nil {
		g.inbox.installing++
	}
	return s
}

// discardStaged drops the staged snapshots that Raft did not want: they had their messages in this
// pass.
func (g *Group) discardStaged(messages []*peerpb.RaftMessage) {
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgSnap {
			continue
		}
		g.inbox.mu.Lock()
		s := g.inbox.takeStaged(func(other *peerpb.RaftMessage) bool { return other == m })
		g.inbox.mu.Unlock()
		if s != nil {
			s.Discard()
		}
	}
}

// installation is a snapshot that Raft accepted, and the append that makes the log follow it.
//
// INVARIANT: appends get to the log in the order in which Raft gave them out. An entry behind a
// snapshot that is not in the log yet would be acknowledged, and then be deleted with all that the
// snapshot replaces.
type installation struct {
	staged group.Staged
	append *raftlog.Append
	// held are the appends that came behind the snapshot, and before the next one. Of the shard
	// worker alone.
	held []*raftlog.Append
}

// install queues the installation behind everything that is still being applied; false if there is
// nothing to install, and the group failed.
func (g *Group) install(a *raftlog.Append) bool {
	staged := g.takeForInstall(a.Snapshot.Index)
	if staged == nil {
		g.fail(fmt.Errorf("raft accepted a snapshot of index %d that was never received",
			a.Snapshot.Index))
		return false
	}
	if c, ok := snapshotConfiguration(staged); ok {
		g.core.Installed(c)
		g.steps.installed = a.Snapshot.Index
		g.reconfigured()
	}
	in := &installation{staged: staged, append: a}
	g.steps.installations = append(g.steps.installations, in)
	g.work.Add(2) // the append and the task
	g.enqueueTask(task{install: in})
	return true
}

// runInstall runs on an apply worker. The state is durable before the log lets go of what came
// before it: after a crash between the two, opening the log finds a state that is ahead, and
// follows it.
func (g *Group) runInstall(in *installation) {
	a := in.append
	if err := in.staged.Install(); err != nil {
		g.failTask(fmt.Errorf("installing the snapshot of index %d: %w", a.Snapshot.Index, err))
		return
	}
	g.inbox.mu.Lock()
	g.inbox.installing--
	g.inbox.mu.Unlock()
	g.host.metrics.snapshotsInstalled.Inc()
	g.host.config.Logger.Info("installed a snapshot", "partition", g.id, "replica", g.self, "index",
		a.Snapshot.Index)
	g.replacing.Add(1)
	var now *group.Configuration
	if c, ok := snapshotConfiguration(in.staged); ok {
		now = &c
	}
	g.setApplied(a.Snapshot.Index, a.Snapshot.Term, now)
	g.do(func(g *Group) { g.installed(in) })
}

// installed lets the log follow the oldest snapshot, and have what came behind that, up to the next
// one. It runs on the shard worker. Snapshots are installed in the order in which they were
// accepted; where one could not be, the group has stopped before it comes to the next.
func (g *Group) installed(in *installation) {
	if len(g.steps.installations) == 0 || g.steps.installations[0] != in {
		g.fail(fmt.Errorf("the snapshot of index %d was installed out of its turn",
			in.append.Snapshot.Index))
		return
	}
	g.steps.installations = slices.Delete(g.steps.installations, 0, 1)
	g.shard.submit(in.append)
	g.shard.submit(in.held...)
}
