package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Group commit. At most maxGroups entries of grouped commands are on their way at a time; commands
// that come meanwhile share the next one. One at a time makes the largest entries: with two, each
// is half as large, and the messages and syncs that they cost take more than the overlap gives. So
// a lone client waits for no other, and under load an entry, with its messages, its place in the
// log and its application, is for dozens of commands.
//
// Commands keep their order and are applied one after the other, as if each had an entry of its
// own. Only those are grouped that take nothing from the entry itself, such as its index.

const (
	maxGroups = 1
	// maxGroupCommands and maxGroupBytes bound one entry.
	maxGroupCommands = 512
	maxGroupBytes    = 512 << 10
)

// grouping is the commands that wait for an entry. Store.mu guards it; it begins anew with each
// leadership.
type grouping struct {
	term  uint64
	queue []grouped
	// underWay is how many entries were proposed and have commands whose outcome is open.
	underWay int
}

// grouped is a command that waits to be proposed.
type grouped struct {
	id   commandID
	p    *pending
	data []byte
}

// entryGroup is an entry on its way.
type entryGroup struct {
	term uint64
	// open is how many of its commands have no outcome yet.
	open int
}

// groups says whether a command may share an entry.
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

// join has a registered command proposed, at once or with the next entry.
func (s *Store) join(id commandID, p *pending, data []byte) {
	s.mu.Lock()
	if l := s.mu.leadership; s.mu.pending[id] != p || !l.IsLeader || p.term != l.Term {
		// The leadership has ended meanwhile. What waits beyond that hears of it from the log.
		s.mu.Unlock()
		return
	}
	s.mu.grouping.queue = append(s.mu.grouping.queue, grouped{id, p, data})
	s.mu.Unlock()
	s.proposeGroups()
}

// proposeGroups proposes what waits, as long as entries may be proposed.
func (s *Store) proposeGroups() {
	for {
		handle, term, group := s.nextGroup()
		if group == nil {
			return
		}
		if err := handle.Propose(term, encodeGroup(group)); err != nil {
			s.notProposed(group, err)
		}
	}
}

// nextGroup takes the commands of an entry; nil if there is none to be proposed now.
func (s *Store) nextGroup() (Group, uint64, []grouped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, l := &s.mu.grouping, s.mu.leadership
	if len(g.queue) == 0 || g.underWay >= maxGroups || !l.IsLeader || s.mu.closed {
		return nil, 0, nil
	}
	var taken []grouped
	entry := &entryGroup{term: l.Term}
	n, size := 0, 0
	for ; n < len(g.queue) && len(taken) < maxGroupCommands; n++ {
		x := g.queue[n]
		if s.mu.pending[x.id] != x.p || x.p.term != l.Term {
			continue // it has an outcome
		}
		if len(taken) > 0 && size+len(x.data) > maxGroupBytes {
			break
		}
		size += len(x.data)
		x.p.group = entry
		taken = append(taken, x)
	}
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	if len(taken) == 0 {
		return nil, 0, nil
	}
	entry.open = len(taken)
	g.underWay++
	return s.mu.group, l.Term, taken
}

// groupsSettled notes that commands have an outcome, and has proposed what has waited for that.
func (s *Store) groupsSettled(all []known) {
	more := false
	s.mu.Lock()
	for _, k := range all {
		entry := k.group
		if entry == nil {
			continue
		}
		if entry.open--; entry.open == 0 && entry.term == s.mu.grouping.term &&
			s.mu.grouping.underWay > 0 {
			s.mu.grouping.underWay--
			more = true
		}
	}
	s.mu.Unlock()
	if more {
		select {
		case s.grouped <- struct{}{}:
		default:
		}
	}
}

// proposer proposes what has waited for earlier entries. It is one goroutine, from New to Close:
// what settles commands is the application of entries, which must not wait for their proposal.
func (s *Store) proposer() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.grouped:
		}
		s.proposeGroups()
	}
}

// notProposed ends commands of which the group said that they were not proposed.
func (s *Store) notProposed(group []grouped, err error) {
	var all []known
	s.mu.Lock()
	for _, x := range group {
		if s.mu.pending[x.id] == x.p {
			delete(s.mu.pending, x.id)
			all = append(all, known{x.p, outcome{
				err: fmt.Errorf("propose to %s: %w", s.config.Name, err)}})
		}
	}
	s.mu.Unlock()
	s.settle(all)
}

// encodeGroup makes an entry. A single command is one as without groups.
func encodeGroup(group []grouped) []byte {
	if len(group) == 1 {
		return group[0].data
	}
	size := 1
	for _, x := range group {
		size += binary.MaxVarintLen32 + len(x.data)
	}
	data := append(make([]byte, 0, size), groupFormat)
	for _, x := range group {
		data = append(binary.AppendUvarint(data, uint64(len(x.data))), x.data...)
	}
	return data
}

// eachCommand calls f with each command of an entry, in its order.
func eachCommand(data []byte, f func([]byte) error) error {
	if len(data) == 0 || data[0] != groupFormat {
		return f(data)
	}
	for rest := data[1:]; len(rest) > 0; {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size == 0 || size > uint64(len(rest)-n) {
			return errors.New("a group of commands is malformed")
		}
		command := rest[n : n+int(size)]
		if command[0] == groupFormat {
			return errors.New("a group of commands holds another one")
		}
		if err := f(command); err != nil {
			return err
		}
		rest = rest[n+int(size):]
	}
	return nil
}
