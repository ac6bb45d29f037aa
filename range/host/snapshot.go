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

// snapshotStall is how long the peer may read nothing of a snapshot before its stream is given up.
// The snapshot is tried again later; others use its slot meanwhile.
const snapshotStall = time.Minute

var errSnapshotStalled = fmt.Errorf("the peer took nothing of it for %s", snapshotStall)

// snapshotSender sends the snapshots of all groups.
type snapshotSender struct {
	host *Host
	// slots holds a token for each snapshot that is being sent.
	slots chan struct{}
}

// send streams the state to a follower, together with the message by which Raft offers it. The
// message is corrected to the index that the state really has.
func (s *snapshotSender) send(g *Group, m *peerpb.RaftMessage) {
	h := s.host
	to := replicaID(m.GetTo())
	report := func(ok bool) { g.do(func(g *Group) { g.core.SnapshotSent(to, ok) }) }
	target := g.HostOf(to)
	if target == 0 || g.ctx.Err() != nil || !g.followers.mayBegin(to, h.now()) {
		report(false)
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		// All slots are taken. Raft asks again with the follower's next answer to a heartbeat.
		report(false)
		return
	}
	g.followers.begin(to, m.GetSnapshot().GetIndex())
	g.work.Add(1)
	h.tasks.Add(1)
	go func() {
		defer h.tasks.Done()
		defer g.work.Done()
		defer func() { <-s.slots }()
		err := s.stream(g, target, m)
		if err != nil && g.ctx.Err() == nil {
			h.metrics.snapshotsFailed.Inc()
			h.config.Logger.Warn("sending a snapshot failed; it will be tried again", "partition",
				g.ID(), "to", target, "error", err)
		}
		g.do(func(g *Group) { g.followers.end(to, err == nil, h.now()) })
		report(err == nil)
	}()
}

func (s *snapshotSender) stream(g *Group, target uint64, m *peerpb.RaftMessage) error {
	snap, err := g.machine.Snapshot()
	if err != nil {
		return fmt.Errorf("taking a snapshot of partition %s: %w", g.ID(), err)
	}
	defer snap.Close()
	if snap.Index() < m.GetSnapshot().GetIndex() {
		return fmt.Errorf("the snapshot of partition %s is of index %d, older than %d", g.ID(),
			snap.Index(), m.GetSnapshot().GetIndex())
	}
	m.Snapshot.Index, m.Snapshot.Term = snap.Index(), snap.Term()
	if c, ok := snapshotConfiguration(snap); ok {
		// The configuration must be of that index too. A configuration newer than the state would
		// count votes of replicas that the state does not know.
		if m.Snapshot.ConfState, err = proto.Marshal(c.ConfState()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(g.ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(snapshotStall, func() { cancel(errSnapshotStalled) })
	defer stalled.Stop()
	err = s.host.transport.SendSnapshot(ctx, target, &peerpb.SnapshotHeader{Message: m},
		func(w io.Writer) error {
			return snap.Write(ctx, progressWriter{w, stalled})
		})
	if err != nil {
		if context.Cause(ctx) == errSnapshotStalled {
			return fmt.Errorf("%w: %w", errSnapshotStalled, err)
		}
		return err
	}
	s.host.metrics.snapshotsSent.Inc()
	return nil
}

// progressWriter restarts a timer whenever the peer has taken some bytes.
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

// HandleSnapshot receives and stages a snapshot. Raft then decides whether to install it.
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
			"of its peers", g.ID())
	}
	if why := g.core.WellFormed(m); why != "" {
		h.refused(g, m, why)
		return fmt.Errorf("partition %s: the message of the snapshot cannot be: %s", g.ID(), why)
	}
	if g.inbox.fullOfSnapshots() {
		return errTooManySnapshots(g.ID())
	}
	staged, err := g.machine.StageSnapshot(ctx, m.GetSnapshot().GetIndex(),
		m.GetSnapshot().GetTerm(), r)
	if err != nil {
		return fmt.Errorf("receiving a snapshot of partition %s: %w", g.ID(), err)
	}
	if err := checkConfiguration(staged, m); err != nil {
		staged.Discard()
		return fmt.Errorf("receiving a snapshot of partition %s: %w", g.ID(), err)
	}
	// Only the end of the stream proves that the snapshot is complete.
	if n, err := io.Copy(io.Discard, r); err != nil || n > 0 {
		staged.Discard()
		return fmt.Errorf("receiving a snapshot of partition %s: %d bytes behind its end: %w", g.ID(),
			n, errors.Join(err, io.ErrUnexpectedEOF))
	}
	full, queue, ok := g.inbox.stage(stagedWith{staged, m})
	if queue {
		g.shard.enqueue(g)
	}
	if !ok {
		staged.Discard()
		return ErrStopped
	}
	if full {
		staged.Discard()
		return errTooManySnapshots(g.ID())
	}
	h.metrics.snapshotsReceived.Inc()
	return nil
}

func errTooManySnapshots(id keys.PartitionID) error {
	return fmt.Errorf("partition %s: there are %d snapshots already that are not installed yet", id,
		maxStaged)
}

// install queues the installation behind everything that is still being applied. It returns false
// if there is no snapshot to install, which fails the group.
func (g *Group) install(a *raftlog.Append) bool {
	staged := g.inbox.takeForInstall(a.Snapshot.Index)
	if staged == nil {
		g.fail(fmt.Errorf("raft accepted a snapshot of index %d that was never received",
			a.Snapshot.Index))
		return false
	}
	if c, ok := snapshotConfiguration(staged); ok {
		g.core.Installed(c)
		g.installed = a.Snapshot.Index
		g.reconfigured()
	}
	in := &installation{staged: staged, append: a}
	g.installations = append(g.installations, in)
	g.work.Add(2) // the append and the task
	g.applier.queue.Add(task{install: in})
	return true
}

// runInstall runs on an apply worker. The state is durable before the log drops its old entries.
// After a crash between the two, opening the log finds a state that is ahead of the log, and moves
// the log up to it.
func (g *Group) runInstall(in *installation) {
	a := in.append
	if err := in.staged.Install(); err != nil {
		g.applier.fail(fmt.Errorf("installing the snapshot of index %d: %w", a.Snapshot.Index, err))
		return
	}
	g.inbox.installed()
	g.host.metrics.snapshotsInstalled.Inc()
	g.host.config.Logger.Info("installed a snapshot", "partition", g.ID(), "replica", g.Self(), "index",
		a.Snapshot.Index)
	g.replacing.Add(1)
	var now *group.Configuration
	if c, ok := snapshotConfiguration(in.staged); ok {
		now = &c
	}
	g.setApplied(a.Snapshot.Index, a.Snapshot.Term, now)
	g.do(func(g *Group) { g.afterInstall(in) })
}

// afterInstall submits the append of the oldest snapshot, and the appends held behind it, up to the
// next snapshot. It runs on the shard worker. Snapshots are installed in the order in which Raft
// accepted them; if an installation fails, the group stops before the next one.
func (g *Group) afterInstall(in *installation) {
	if len(g.installations) == 0 || g.installations[0] != in {
		g.fail(fmt.Errorf("the snapshot of index %d was installed out of its turn",
			in.append.Snapshot.Index))
		return
	}
	g.installations = slices.Delete(g.installations, 0, 1)
	g.shard.submit(in.append)
	g.shard.submit(in.held...)
}
