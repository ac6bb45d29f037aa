package planner

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// mark is what the last step found out about a partition.
type mark struct {
	flags uint8
	// urge is the queue of waiting that it is in, urgeNothing for none.
	urge urgency
}

const (
	flagStuck uint8 = 1 << iota
	// flagFit: complete, every replica live and sound: it may be moved for balance.
	flagFit
	// flagListed: it is in the list of what is stuck, although it may not be stuck any more.
	flagListed
	// flagBlocked: it is stuck with something wrong, not only with something that could be better.
	flagBlocked
)

// look looks at everything that has changed, and has what is wrong wait for its turn.
func (s *State) look() {
	changes := s.takeChanges()
	for len(s.marks) < len(s.partitions) {
		s.marks = append(s.marks, mark{urge: urgeNothing})
	}
	for _, i := range changes.Removed {
		s.waiting.put(s, i, urgeNothing)
		s.marks[i].flags &= flagListed // until the list is gone through
	}
	s.waiting.reused = s.waiting.reused || changes.Reused
	list := changes.Partitions
	if changes.Nodes {
		for _, i := range s.stuck {
			s.marks[i].flags &^= flagStuck | flagListed | flagBlocked
		}
		list = append(list, s.stuck...)
		s.stuck = s.stuck[:0]
	}
	if changes.Nodes || changes.Keyspaces {
		s.barren = [levels]time.Time{}
	}
	if changes.FewerPlaces {
		// What waited to be spread better may be spread as well as can be now.
		list = append(list, s.waiting.sorted[urgeSpread]...)
	}
	for _, i := range list {
		m := &s.marks[i]
		m.flags &^= flagStuck | flagBlocked
		p := &s.partitions[i]
		if p.id == 0 {
			continue
		}
		f := finding{urgency: urgeNothing}
		if !p.flying { // looked at again when it has ended
			f = s.check(i)
			if m.flags &^= flagFit; f.fit {
				m.flags |= flagFit
			}
		}
		if f.urgency == urgeBlocked {
			s.setStuck(f)
			f.urgency = urgeNothing
		}
		s.waiting.put(s, i, f.urgency)
	}
	s.waiting.settle(s)
}

// isStuck says whether the last step found that nothing can be done about a partition.
func (s *State) isStuck(i uint32) bool {
	return int(i) < len(s.marks) && s.marks[i].flags&flagStuck != 0
}

// isFit says whether the last step found a partition complete, with every replica live and sound.
func (s *State) isFit(i uint32) bool {
	return int(i) < len(s.marks) && s.marks[i].flags&flagFit != 0
}

func (s *State) setStuck(f finding) {
	m := &s.marks[f.partition]
	if m.flags |= flagStuck; f.urgency < urgeSpread || f.urgency == urgeBlocked {
		m.flags |= flagBlocked
	}
	if m.flags&flagListed == 0 {
		m.flags |= flagListed
		s.stuck = append(s.stuck, f.partition)
	}
}

// blocked counts what is stuck, and drops what no longer is.
func (s *State) blocked() (int, []keys.PartitionID) {
	kept := s.stuck[:0]
	var first []keys.PartitionID
	for _, i := range s.stuck {
		p, m := &s.partitions[i], &s.marks[i]
		if p.id == 0 || m.flags&flagStuck == 0 {
			m.flags &^= flagStuck | flagListed | flagBlocked
			continue
		}
		kept = append(kept, i)
		if m.flags&flagBlocked != 0 {
			first = append(first, p.id)
		}
	}
	s.stuck = kept
	slices.Sort(first)
	return len(first), slices.Clone(first[:min(len(first), maxNamed)])
}
