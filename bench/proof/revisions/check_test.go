package revisions

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// naive is a simple, correct store that keeps all of its states.
type naive struct {
	revisions []map[string]Pair
}

func (n *naive) revision() int64 { return int64(len(n.revisions)) }

func (n *naive) at(revision int64) map[string]Pair {
	if revision == 0 {
		return map[string]Pair{}
	}
	return n.revisions[revision-1]
}

func (n *naive) do(o *Operation, revision int64) (bool, int64, [][]Pair) {
	now := maps.Clone(n.at(revision))
	succeeded := true
	for _, c := range o.Compares {
		p, present := now[c.Key]
		same := present && p.Value == c.Value
		switch c.Target {
		case Create:
			same = p.Create == c.Number
		case Mod:
			same = p.Mod == c.Number
		case Version:
			same = p.Version == c.Number
		}
		succeeded = succeeded && same != c.Not && (present || c.Target != Value)
	}
	branch := o.Then
	if !succeeded {
		branch = o.Else
	}
	wrote := false
	found := make([][]Pair, len(branch))
	for i, a := range branch {
		for _, key := range slices.Sorted(maps.Keys(now)) {
			if a.covers(key) {
				found[i] = append(found[i], now[key])
				if a.Kind == Delete {
					delete(now, key)
					wrote = true
				}
			}
		}
		if a.Kind == Put {
			p, present := now[a.Key]
			if !present {
				p.Create = n.revision() + 1
			}
			now[a.Key] = Pair{a.Key, a.Value, p.Create, n.revision() + 1, p.Version + 1}
			wrote = true
		}
	}
	if wrote {
		n.revisions = append(n.revisions, now)
		revision = n.revision()
	}
	return succeeded, revision, found
}

// fault executes an operation wrongly. It returns the answer.
type fault func(n *naive, o *Operation) (bool, int64, [][]Pair)

// history makes a history of clients whose calls overlap. Each call takes effect at a random moment
// between its beginning and its end. A call of unknown outcome may have no effect.
func history(random *rand.Rand, steps int, wrong fault) []Operation {
	r, n := NewRecorder(), &naive{}
	type call struct {
		Pending
		answer func()
	}
	var open [5]*call
	var known []Pair
	for value := range steps {
		i := random.IntN(len(open))
		c := open[i]
		switch {
		case c == nil:
			o := randomOperation(random, i, fmt.Sprintf("v%d", value), known)
			open[i] = &call{Pending: r.Begin(o)}
		case c.answer == nil:
			o := c.operation
			lost := random.IntN(10) == 0
			if lost && random.IntN(2) == 0 {
				c.answer = c.Unknown
				continue
			}
			var succeeded bool
			var revision int64
			var found [][]Pair
			switch {
			case wrong != nil && random.IntN(8) == 0:
				succeeded, revision, found = wrong(n, o)
			case o.Serializable:
				succeeded, revision, found = n.do(o, random.Int64N(n.revision()+1))
			default:
				succeeded, revision, found = n.do(o, n.revision())
			}
			c.answer = func() {
				c.Done(succeeded, revision, found)
				for _, pairs := range found {
					known = append(known, pairs...)
				}
			}
			if lost {
				c.answer = c.Unknown
			}
		default:
			c.answer()
			open[i] = nil
		}
	}
	return r.Operations()
}

func randomOperation(random *rand.Rand, client int, value string, known []Pair) Operation {
	key := func() string { return string(rune('a' + random.IntN(3))) }
	o := Operation{Client: client}
	switch k := key(); random.IntN(6) {
	case 0:
		o.Then = []Action{{Kind: Put, Key: k, Value: value}}
	case 1:
		o.Then = []Action{{Kind: Delete, Key: k, End: "c"}}
	case 2:
		o.Then, o.Serializable = []Action{{Kind: Get, Key: "a", End: "z"}}, random.IntN(2) == 0
	case 3:
		o.Then = []Action{{Kind: Get, Key: k}}
	default:
		c := Compare{Key: k, Target: Target(random.IntN(4)), Not: random.IntN(3) == 0}
		if len(known) > 0 {
			p := known[len(known)-1-random.IntN(min(len(known), 3))]
			c.Key, c.Value = p.Key, p.Value
			c.Number = []int64{0, p.Create, p.Mod, p.Version}[c.Target]
		}
		o.Compares = []Compare{c}
		o.Then = []Action{{Kind: Get, Key: "a", End: "z"}, {Kind: Put, Key: k, Value: value},
			{Kind: Get, Key: k}}
		o.Else = []Action{{Kind: Get, Key: k}, {Kind: Put, Key: "c", Value: value + "'"}}
	}
	return o
}

func TestRightStorePasses(t *testing.T) {
	for seed := range uint64(60) {
		operations := history(rand.New(rand.NewPCG(seed, 0)), 300, nil)
		if r := Check(operations, 20*time.Second); len(r.Complaints) > 0 || r.Undecided {
			t.Fatalf("seed %d: %v", seed, r)
		}
	}
}

// Each mistake of a store is noticed in at least one of a few histories.
func TestMistakesAreNoticed(t *testing.T) {
	right := func(n *naive, o *Operation) (bool, int64, [][]Pair) { return n.do(o, n.revision()) }
	mistakes := map[string]fault{
		"a stale read for a linearizable one": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			if o.reads() && !o.Serializable {
				return n.do(o, n.revision()*9/10)
			}
			return right(n, o)
		},
		"a read with a revision that is too new": func(n *naive,
			o *Operation) (bool, int64, [][]Pair) {
			succeeded, revision, found := right(n, o)
			if o.Serializable {
				revision++
			}
			return succeeded, revision, found
		},
		"a write that is lost": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			before := n.revision()
			succeeded, revision, found := right(n, o)
			n.revisions = n.revisions[:before]
			return succeeded, revision, found
		},
		"a write that is done twice": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			n.do(o, n.revision())
			return right(n, o)
		},
		"two writes at one revision": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			succeeded, revision, found := right(n, o)
			if !o.reads() {
				revision--
			}
			return succeeded, revision, found
		},
		"a torn read": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			succeeded, revision, found := right(n, o)
			if o.Serializable {
				_, _, older := n.do(o, max(0, n.revision()-3))
				for i, p := range found[0] {
					if k := slices.IndexFunc(older[0],
						func(q Pair) bool { return q.Key == p.Key }); k >= 0 && i%2 == 0 {
						found[0][i] = older[0][k]
					}
				}
			}
			return succeeded, revision, found
		},
		"comparisons that are ignored": func(n *naive, o *Operation) (bool, int64, [][]Pair) {
			c := *o
			c.Compares = nil
			return right(n, &c)
		},
	}
	for name, wrong := range mistakes {
		t.Run(name, func(t *testing.T) {
			noticed := 0
			for seed := range uint64(20) {
				r := Check(history(rand.New(rand.NewPCG(seed, 1)), 300, wrong), 20*time.Second)
				if len(r.Complaints) > 0 {
					noticed++
				}
			}
			if noticed < 3 {
				t.Errorf("noticed in %d of 20 histories", noticed)
			}
		})
	}
}

func TestComplaintsTellTheAnswer(t *testing.T) {
	r := NewRecorder()
	put := []Action{{Kind: Put, Key: "k", Value: "v"}}
	get := []Action{{Kind: Get, Key: "k"}}
	r.Begin(Operation{Then: put}).Done(true, 5, [][]Pair{nil})
	r.Begin(Operation{Client: 1, Then: get}).Done(true, 4, [][]Pair{nil})
	r.Begin(Operation{Client: 1, Then: get}).Done(true, 6, [][]Pair{{{"k", "v", 5, 5, 1}}})
	text := Check(r.Operations(), time.Minute).String()
	if !strings.Contains(text, "=> [3 to 4") || strings.Contains(text, "[5 to 6") {
		t.Errorf("the complaint is %s", text)
	}
}
