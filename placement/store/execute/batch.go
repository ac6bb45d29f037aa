package execute

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Group commit. At most maxGroups entries of grouped commands are in flight; commands that arrive
// meanwhile share the next entry. One entry in flight makes the largest entries: with two, each is
// half as large, and their additional messages and syncs cost more than the overlap saves. So a
// lone client waits for no other, and under load one entry serves dozens of commands.
//
// Commands keep their order and are applied one after the other, as if each had an entry of its
// own. Commands that depend on the entry itself, such as on its index, are not grouped.

const (
	maxGroups = 1
	// maxGroupCommands and maxGroupBytes bound one entry.
	maxGroupCommands = 512
	maxGroupBytes    = 512 << 10
)

// grouping are the commands that wait for an entry. Executor.mu guards it; it is reset with each
// leadership.
type grouping struct {
	term  uint64
	queue []grouped
	// underWay counts the proposed entries that have commands with unknown outcome.
	underWay int
}

// grouped is a command that waits to be proposed.
type grouped struct {
	id   ID
	p    *pending
	data []byte
}

// entryGroup is an entry in flight.
type entryGroup struct {
	term uint64
	// open is the number of its commands without an outcome.
	open int
}

// groups reports whether a command may share an entry.
func groups(c *storepb.Command) bool {
	if c.Session != 0 {
		return false // a session remembers the index of its latest command
	}
	switch c.Op.(type) {
	case *storepb.Command_Txn, *storepb.Command_LeaseGrant, *storepb.Command_LeaseRevoke,
		*storepb.Command_LeaseCheckpoint:
		return true
	}
	return false
}

// join proposes a registered command, at once or with the next entry.
func (x *Executor) join(id ID, p *pending, data []byte) {
	x.mu.Lock()
	if l := x.mu.leadership; x.mu.pending[id] != p || !l.IsLeader || p.term != l.Term {
		// The leadership has ended meanwhile. The other waiting commands learn that from the log.
		x.mu.Unlock()
		return
	}
	x.mu.grouping.queue = append(x.mu.grouping.queue, grouped{id, p, data})
	x.mu.Unlock()
	x.proposeGroups()
}

// proposeGroups proposes the waiting commands, as long as entries may be proposed.
func (x *Executor) proposeGroups() {
	for {
		handle, term, group := x.nextGroup()
		if group == nil {
			return
		}
		if err := handle.Propose(term, command.EncodeEntry(dataOf(group))); err != nil {
			x.notProposed(group, err)
		}
	}
}

// nextGroup takes the commands of the next entry; nil if none may be proposed now.
func (x *Executor) nextGroup() (Group, uint64, []grouped) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g, l := &x.mu.grouping, x.mu.leadership
	if len(g.queue) == 0 || g.underWay >= maxGroups || !l.IsLeader || x.mu.closed {
		return nil, 0, nil
	}
	var taken []grouped
	entry := &entryGroup{term: l.Term}
	n, size := 0, 0
	for ; n < len(g.queue) && len(taken) < maxGroupCommands; n++ {
		q := g.queue[n]
		if x.mu.pending[q.id] != q.p || q.p.term != l.Term {
			continue // it has an outcome
		}
		if len(taken) > 0 && size+len(q.data) > maxGroupBytes {
			break
		}
		size += len(q.data)
		q.p.group = entry
		taken = append(taken, q)
	}
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	if len(taken) == 0 {
		return nil, 0, nil
	}
	entry.open = len(taken)
	g.underWay++
	return x.mu.group, l.Term, taken
}

// groupsSettled records that commands have an outcome, and wakes the proposer if commands wait for
// that.
func (x *Executor) groupsSettled(all []Known) {
	more := false
	x.mu.Lock()
	for _, k := range all {
		entry := k.group
		if entry == nil {
			continue
		}
		if entry.open--; entry.open == 0 && entry.term == x.mu.grouping.term &&
			x.mu.grouping.underWay > 0 {
			x.mu.grouping.underWay--
			more = true
		}
	}
	x.mu.Unlock()
	if more {
		select {
		case x.grouped <- struct{}{}:
		default:
		}
	}
}

// dataOf returns the encoded commands of an entry.
func dataOf(group []grouped) [][]byte {
	data := make([][]byte, len(group))
	for i := range group {
		data[i] = group[i].data
	}
	return data
}

// proposer proposes commands that have waited for earlier entries. One goroutine runs it, from New
// to Close: the application of entries settles commands, and must not wait for proposals.
func (x *Executor) proposer() {
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-x.grouped:
		}
		x.proposeGroups()
	}
}

// notProposed ends commands that the group has refused to propose.
func (x *Executor) notProposed(group []grouped, err error) {
	var all []Known
	x.mu.Lock()
	for _, q := range group {
		if x.mu.pending[q.id] == q.p {
			delete(x.mu.pending, q.id)
			all = append(all, Known{q.p, outcome{
				err: fmt.Errorf("propose to %s: %w", x.config.Name, err)}})
		}
	}
	x.mu.Unlock()
	x.Settle(all)
}
