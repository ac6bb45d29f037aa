package host

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/applyqueue"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// task is a piece of work in a group's apply queue. Exactly one field is set. The caller that adds
// a task has counted it in Group.work. Raft bounds how many bytes of entries the tasks hold.
type task struct {
	apply   *raftpb.Message
	install *installation
	// run is work that must not run at the same time as applying.
	run func()
}

// installation is a snapshot that Raft has accepted, and the append that replaces the log with the
// snapshot.
//
// INVARIANT: appends get to the log in the order in which Raft gave them out. If an entry behind
// the snapshot reached the log first, it would be acknowledged, and then deleted with everything
// that the snapshot replaces.
type installation struct {
	staged group.Staged
	append *raftlog.Append
	// held lists the appends that came after this snapshot and before the next one. Only the shard
	// worker may touch it.
	held []*raftlog.Append
}

// applyPool runs the tasks of all groups. Each worker keeps a slice of entries as scratch memory.
type applyPool = applyqueue.Pool[task, []group.Entry]

// applier applies a group's committed entries, and runs what must not run at the same time.
type applier struct {
	group *Group
	queue applyqueue.Queue[task, []group.Entry]
	// broken is set when a task failed: no later task may run. Only the worker that runs the tasks
	// may touch it.
	broken bool
}

// RunTasks implements applyqueue.Runner.
func (a *applier) RunTasks(tasks []task, scratch *[]group.Entry) (n int) {
	n = together(tasks)
	a.runTogether(tasks[:n], scratch)
	a.group.work.Add(-n)
	return n
}

// DropTasks implements applyqueue.Runner.
func (a *applier) DropTasks(tasks []task) {
	for _, t := range tasks {
		if t.install != nil {
			t.install.staged.Discard()
		}
		a.group.work.Done()
	}
}

// together returns how many of the first tasks are run as one: tasks that apply entries, until
// their entries are enough for one batch. On a leader these tasks have come while the workers were
// busy. One batch of all of them is done before the last of several batches would be, and hardly
// later than the first.
func together(tasks []task) int {
	n, bytes := 0, 0
	for n < len(tasks) && tasks[n].apply != nil && bytes < maxBatchBytes {
		bytes += entryBytes(tasks[n].apply)
		n++
	}
	return max(1, n)
}

// runTogether runs a task, or several that apply entries.
func (a *applier) runTogether(tasks []task, scratch *[]group.Entry) {
	defer func() {
		if p := recover(); p != nil {
			a.fail(panicked("applying", p))
		}
	}()
	t := &tasks[0]
	if a.broken || a.group.Failed() != nil {
		if t.install != nil {
			t.install.staged.Discard()
		}
		return
	}
	switch {
	case t.apply != nil:
		a.applyEntries(tasks, scratch)
	case t.install != nil:
		a.group.runInstall(t.install)
	case t.run != nil:
		t.run()
	}
}

// fail marks the group failed on the apply worker. The tasks behind the failed one are not run,
// even before the shard worker learns of the failure.
func (a *applier) fail(err error) {
	a.broken = true
	a.group.failFrom(err)
}

// applyEntries applies the entries of the tasks' MsgStorageApply, and answers them.
func (a *applier) applyEntries(tasks []task, scratch *[]group.Entry) {
	entries := (*scratch)[:0]
	var changes []changed
	var last uint64
	for i, t := range tasks {
		for j, e := range t.apply.Entries {
			last = e.GetIndex()
			entry := group.Entry{Index: last, Term: e.GetTerm(), Times: a.group.logged.of(last)}
			switch e.GetType() {
			case raftpb.EntryNormal:
				entry.Data = e.GetData()
			case raftpb.EntryConfChangeV2:
				data, err := group.DecodeChange(e)
				if err != nil {
					a.fail(err)
					return
				}
				entry.Data, entry.Change = data, true
			}
			entries = append(entries, entry)
			end := i == len(tasks)-1 && j == len(t.apply.Entries)-1
			if !end && !entry.Change {
				continue
			}
			// Whether a change was taken is seen when nothing was applied behind it.
			now, err := a.applyTogether(entries)
			clear(entries)
			entries = entries[:0]
			if err != nil {
				a.fail(err)
				return
			}
			if now != nil {
				changes = append(changes, changed{e, *now})
			}
		}
	}
	*scratch = entries
	a.group.put(func(in *inbox) {
		in.changes = append(in.changes, changes...)
		for _, t := range tasks {
			in.local = append(in.local, t.apply.Responses...)
		}
	})
	a.group.storage.Release(last, false)
}

// applyTogether applies entries, of which only the last may change the configuration. It returns
// the new configuration if that entry has changed it, and nil otherwise.
func (a *applier) applyTogether(entries []group.Entry) (now *group.Configuration, err error) {
	g, start, last := a.group, time.Now(), &entries[len(entries)-1]
	for i := range entries {
		entries[i].Times.Applying = start
	}
	if err := g.machine.Apply(entries); err != nil {
		return nil, fmt.Errorf("applying entries %d to %d: %w", entries[0].Index, last.Index, err)
	}
	g.host.metrics.applySeconds.Observe(time.Since(start).Seconds())
	g.host.metrics.appliedEntries.Add(float64(len(entries)))
	// A replica that was brought further meanwhile, to be merged into another one, has a later
	// configuration than this change makes. Nothing will come of this group any more.
	if at, _ := g.machine.Applied(); last.Change && at <= last.Index {
		c := g.machineConfiguration()
		if before := g.appliedState().Configuration; !c.Agrees(before) {
			now = &c
		}
	}
	g.setApplied(last.Index, last.Term, now)
	return now, nil
}

// A data node's followers apply later (Config.FollowersApplyAfter). Hardly a request waits for what
// they apply: of reads from what is just committed they answer those that a leader has admitted,
// and these wait for so much longer. A follower learns of a commit with the entries that come next,
// so if it applied at once, it would do so while a client waits for those. Applied a little later,
// the entries of several messages are one batch of the state database.
//
// Leaders apply at once, and so does a replica that comes to lead: the first entry of its
// leadership is behind what it has left for later. What requests wait for on followers too is not
// left for later (group.Urgent).

// maxBatchBytes is the size at which a batch takes no further entries.
const maxBatchBytes = 64 << 10

// urgent reports whether requests may wait for a follower to apply these entries.
func (a *applier) urgent(m *raftpb.Message) bool {
	machine, ok := a.group.machine.(group.Urgent)
	return ok && slices.ContainsFunc(m.Entries, func(e *raftpb.Entry) bool {
		return machine.Urgent(e.GetData())
	})
}

// entryBytes estimates how much memory the entries of a message take.
func entryBytes(m *raftpb.Message) int {
	n := 0
	for _, e := range m.Entries {
		n += 64 + len(e.GetData())
	}
	return n
}
