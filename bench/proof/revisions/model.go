package revisions

import (
	"fmt"
	"slices"
	"strings"
)

// unknown is a revision in the model that no client has learned.
const unknown = -1

// state is the store after some operations. A state is immutable.
type state struct {
	// floor is the highest revision that is known to have been reached, by a write or by a later
	// read.
	floor int64
	pairs []Pair // by key
}

func (s *state) equal(t *state) bool {
	return s.floor == t.floor && slices.Equal(s.pairs, t.pairs)
}

func (s *state) String() string { return fmt.Sprintf("revision %d: %s", s.floor, list(s.pairs)) }

// hash is the same for equal states.
func (s *state) hash() uint64 {
	h := uint64(s.floor)
	for _, p := range s.pairs {
		h = h*1_000_003 + uint64(p.Mod)*31 + uint64(p.Version)
	}
	return h
}

func (s *state) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s.pairs, key,
		func(p Pair, key string) int { return strings.Compare(p.Key, key) })
}

// compare evaluates a comparison. A number that no client has learned never equals a client's
// number, because clients take their numbers from answers.
func (s *state) compare(c Compare) bool {
	var p Pair
	i, present := s.find(c.Key)
	if present {
		p = s.pairs[i]
	}
	switch c.Target {
	case Value:
		return present && (p.Value == c.Value) != c.Not
	case Create:
		return (p.Create == c.Number) != c.Not
	case Mod:
		return (p.Mod == c.Number) != c.Not
	}
	return (p.Version == c.Number) != c.Not
}

// step says whether an operation can have had its answer in this state, and returns the state after
// it. An operation of unknown outcome takes effect here.
func (s *state) step(o *Operation) (bool, *state) {
	known := o.Outcome == Done
	succeeded := true
	for _, c := range o.Compares {
		succeeded = succeeded && s.compare(c)
	}
	if known && succeeded != o.Succeeded {
		return false, nil
	}
	branch := o.Then
	if !succeeded {
		branch = o.Else
	}
	revision := o.at
	if known {
		revision = o.Revision
	} else if revision == 0 {
		revision = unknown
	}
	if known && len(o.Found) != len(branch) {
		return false, nil
	}
	next := &state{floor: s.floor, pairs: slices.Clone(s.pairs)}
	wrote := false
	for i, a := range branch {
		var answer []Pair
		if known {
			answer = o.Found[i]
		}
		did, ok := next.act(a, revision, known, answer)
		if !ok {
			return false, nil
		}
		wrote = wrote || did
	}
	switch {
	case wrote && revision == unknown:
		next.floor++
	case wrote && revision <= s.floor, known && revision < s.floor, o.at > 0 && !wrote:
		return false, nil
	case known || wrote:
		next.floor = revision
	}
	return true, next
}

// act does an action at a revision. It says whether the action wrote, and whether the answer is
// right. Unknown numbers in the model are replaced by the numbers in the answer.
func (s *state) act(a Action, revision int64, known bool, answer []Pair) (wrote, ok bool) {
	n := 0
	for i := range s.pairs {
		if !a.covers(s.pairs[i].Key) {
			continue
		}
		if known && (n >= len(answer) || !s.pairs[i].learn(answer[n])) {
			return false, false
		}
		n++
	}
	if known && n != len(answer) {
		return false, false
	}
	switch a.Kind {
	case Put:
		i, present := s.find(a.Key)
		p := Pair{Key: a.Key, Create: revision}
		if present {
			p = s.pairs[i]
		} else {
			s.pairs = slices.Insert(s.pairs, i, p)
		}
		p.Value, p.Mod, p.Version = a.Value, revision, p.Version+1
		s.pairs[i] = p
		return true, true
	case Delete:
		s.pairs = slices.DeleteFunc(s.pairs, func(p Pair) bool { return a.covers(p.Key) })
		return n > 0, true
	}
	return false, true
}

// learn says whether a pair of the model agrees with the pair in an answer. Unknown numbers in the
// model are replaced by the numbers in the answer.
func (p *Pair) learn(found Pair) bool {
	if p.Create == unknown {
		p.Create = found.Create
	}
	if p.Mod == unknown {
		p.Mod = found.Mod
	}
	return *p == found
}
