package isolation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// bug is a bug of a simulated database.
type bug int

const (
	// correct is strictly serialisable: a transaction commits only if its reads are still valid.
	correct bug = iota
	// snapshots lets a transaction commit if no other transaction wrote a key that it writes
	// (snapshot isolation).
	snapshots
	// readCommitted reads the latest committed version at each read, and lets every transaction
	// commit.
	readCommitted
	// readUncommitted also reads uncommitted writes of other transactions. Writes of aborted
	// transactions are dropped.
	readUncommitted
	// lastWriterWins reads a snapshot, and lets every transaction commit.
	lastWriterWins
	// staleReads is correct, but transactions that only read may see an old state, though no older
	// than the state that their session has seen.
	staleReads
	// staleSessions does not respect sessions either.
	staleSessions
	// fractured is correct, but transactions that only read see each key at another moment.
	fractured
	// sites is two copies. Each copy sees commits of the other copy later, and only writers of one
	// key exclude each other.
	sites
)

// version is one committed version of a key. A list's version has all elements.
type version struct {
	at     int // the number of the commit
	values []string
	site   int
}

type simulated struct {
	random  *rand.Rand
	bug     bug
	lists   bool
	commits int
	keys    map[string][]version
	dirty   map[string][]string // writes of running transactions
	clock   time.Duration
	value   int
}

// attempt is a running transaction.
type attempt struct {
	transaction Transaction
	snapshot    int
	reads       map[string]int // the version of each key at the first read
	own         map[string][]string
	length      int
	readOnly    bool
	site        int
}

func (s *simulated) tick() time.Duration {
	s.clock += time.Duration(1+s.random.IntN(3)) * time.Millisecond
	return s.clock
}

// visible returns the newest version of a key that was committed before a moment and is known at a
// site.
func (s *simulated) visible(key string, moment, site int) version {
	const delay = 6
	newest := version{}
	for _, v := range s.keys[key] {
		if v.at <= moment && (s.bug != sites || v.site == site || v.at+delay <= moment) {
			newest = v
		}
	}
	return newest
}

func (s *simulated) step(a *attempt, key string) {
	moment := a.snapshot
	switch {
	case s.bug == readCommitted || s.bug == readUncommitted:
		moment = s.commits
	case s.bug == fractured && a.readOnly:
		moment = max(0, s.commits-s.random.IntN(4))
	}
	seen := s.visible(key, moment, a.site)
	if _, again := a.reads[key]; !again {
		a.reads[key] = seen.at
	}
	write := func() {
		s.value++
		value := fmt.Sprint(s.value)
		a.own[key] = append(a.own[key], value)
		s.dirty[key] = append(s.dirty[key], value)
		kind := Write
		if s.lists {
			kind = Append
		}
		a.transaction.Operations = append(a.transaction.Operations, Operation{Kind: kind, Key: key,
			Value: value})
	}
	values := slices.Clone(seen.values)
	if s.bug == readUncommitted && len(a.own[key]) == 0 && s.random.IntN(4) == 0 {
		values = append(values, s.dirty[key]...)
	}
	values = append(values, a.own[key]...)
	o := Operation{Kind: Read, Key: key, Absent: len(values) == 0}
	if s.lists {
		o = Operation{Kind: ReadList, Key: key, List: values}
	} else if len(values) > 0 {
		o.Value = values[len(values)-1]
	}
	if a.readOnly || s.random.IntN(2) == 0 || !s.lists {
		a.transaction.Operations = append(a.transaction.Operations, o)
	}
	if !a.readOnly && s.random.IntN(2) == 0 {
		write()
	}
}

// newest returns the moment of the last write of a key.
func (s *simulated) newest(key string) int {
	if n := len(s.keys[key]); n > 0 {
		return s.keys[key][n-1].at
	}
	return 0
}

// valid says whether a transaction may commit.
func (s *simulated) valid(a *attempt) bool {
	if a.readOnly && s.bug != correct { // it reads its snapshot
		return true
	}
	switch s.bug {
	case readCommitted, readUncommitted, lastWriterWins:
		return true
	case snapshots, sites:
		for key := range a.own {
			if s.newest(key) != a.reads[key] {
				return false
			}
		}
		return true
	default:
		for key, at := range a.reads {
			if s.newest(key) != at {
				return false
			}
		}
		return true
	}
}

// finish commits or aborts a transaction. Some outcomes are lost.
func (s *simulated) finish(a *attempt) Transaction {
	for key, values := range a.own {
		s.dirty[key] = slices.DeleteFunc(s.dirty[key],
			func(v string) bool { return slices.Contains(values, v) })
	}
	t := a.transaction
	t.Outcome = Aborted
	if s.random.IntN(20) != 0 && s.valid(a) {
		t.Outcome = Committed
		if len(a.own) > 0 {
			s.commits++
			t.Commit = Timestamp{Wall: int64(s.commits)}
			for key, values := range a.own {
				base := s.visible(key, s.commits, a.site).values
				if s.bug == lastWriterWins {
					base = s.visible(key, a.snapshot, a.site).values
				}
				s.keys[key] = append(s.keys[key], version{at: s.commits, values: slices.Concat(base,
					values), site: a.site})
			}
		}
	}
	if s.random.IntN(20) == 0 {
		t.Outcome, t.Commit = Unknown, Timestamp{}
	}
	t.End = s.tick()
	return t
}

// simulate runs transactions of a few sessions, one operation at a time in random order.
func simulate(seed uint64, b bug, lists bool, transactions int) []Transaction {
	const clients = 5
	s := &simulated{random: rand.New(rand.NewPCG(seed, 1)), bug: b, lists: lists,
		keys: map[string][]version{}, dirty: map[string][]string{}}
	var history []Transaction
	running := make([]*attempt, clients)
	seen := make([]int, clients) // the newest commit that a session knows
	for n := 0; n < transactions; {
		client := s.random.IntN(clients)
		a := running[client]
		if a == nil {
			n++
			a = &attempt{
				snapshot: s.commits, reads: map[string]int{}, own: map[string][]string{},
				length:   1 + s.random.IntN(4),
				readOnly: s.random.IntN(3) == 0, site: client % 2,
			}
			a.transaction = Transaction{Session: client, Begin: s.tick()}
			if a.readOnly && s.random.IntN(2) == 0 {
				if s.bug == staleReads {
					a.snapshot = seen[client] + s.random.IntN(s.commits-seen[client]+1)
				} else if s.bug == staleSessions {
					a.snapshot = s.random.IntN(s.commits + 1)
				}
			}
			running[client] = a
			continue
		}
		if len(a.transaction.Operations) < a.length {
			s.step(a, fmt.Sprint("k", n/40*3+s.random.IntN(3)))
			continue
		}
		t := s.finish(a)
		running[client] = nil
		history = append(history, t)
		if t.Outcome != Aborted {
			seen[client] = max(seen[client], a.snapshot, int(t.Commit.Wall))
			if len(a.own) > 0 && t.Outcome == Unknown {
				seen[client] = s.commits
			}
		}
	}
	for _, a := range running {
		if a != nil { // the transaction never ended
			history = append(history, a.transaction)
		}
	}
	return history
}

// TestSimulatedDatabases checks that each database shows the anomalies of its bug, and no others.
func TestSimulatedDatabases(t *testing.T) {
	of := func(variants int, names ...Anomaly) []Anomaly {
		var all []Anomaly
		for _, name := range names {
			all = append(all, name)
			if variants > 0 {
				all = append(all, name.Process(), name.RealTime())
			}
		}
		return all
	}
	for _, test := range []struct {
		name  string
		bug   bug
		lists bool
		level Level
		// must has anomalies that some of the histories show. may has anomalies that any history
		// may show. broken says whether the level is broken.
		must, may []Anomaly
		broken    bool
	}{
		{name: "correct", bug: correct, lists: true, level: StrictSerialisable},
		{name: "correct", bug: correct, level: StrictSerialisable},
		{name: "snapshots hold as such", bug: snapshots, lists: true, level: SnapshotIsolation,
			must: of(0, G2Item)},
		{name: "snapshots hold as such", bug: snapshots, level: SnapshotIsolation,
			must: of(0, G2Item)},
		{name: "snapshots are not serialisable", bug: snapshots, lists: true,
			level: StrictSerialisable, broken: true,
			must: of(0, G2Item), may: of(1, G2Item)},
		{name: "read committed", bug: readCommitted, lists: true, level: StrictSerialisable,
			broken: true,
			must:   of(0, GSingle, NonRepeatableRead, LostUpdate), may: of(1, GSingle, GNonadjacent,
				G2Item)},
		{name: "read committed", bug: readCommitted, level: Serialisable, broken: true,
			must: of(0, GSingle, NonRepeatableRead, LostUpdate), may: of(0, GSingle, GNonadjacent,
				G2Item)},
		{name: "last writer wins", bug: lastWriterWins, level: Serialisable, broken: true,
			must: of(0, LostUpdate, G2Item), may: of(0, GSingle, GNonadjacent)},
		{name: "last writer wins loses appends", bug: lastWriterWins, lists: true,
			level: Serialisable, broken: true,
			must: of(0, LostUpdate, IncompatibleOrder), may: of(0, G0, G1c, GSingle, GNonadjacent,
				G2Item)},
		{name: "stale reads", bug: staleReads, lists: true, level: StrictSerialisable, broken: true,
			must: []Anomaly{GSingle.RealTime()}, may: []Anomaly{GNonadjacent.RealTime(),
				G2Item.RealTime()}},
		{name: "stale reads keep sessions", bug: staleReads, lists: true,
			level: StrongSessionSerialisable},
		{name: "stale sessions", bug: staleSessions, lists: true, level: StrictSerialisable,
			broken: true,
			must:   []Anomaly{GSingle.RealTime(), GSingle.Process()},
			may: []Anomaly{GNonadjacent.RealTime(), G2Item.RealTime(), GNonadjacent.Process(),
				G2Item.Process()}},
		{name: "stale sessions are serialisable", bug: staleSessions, lists: true,
			level: Serialisable},
		{name: "fractured reads", bug: fractured, lists: true, level: SnapshotIsolation,
			broken: true,
			must:   of(0, GSingle), may: of(0, NonRepeatableRead, GNonadjacent, G2Item)},
		{name: "two sites", bug: sites, lists: true, level: SnapshotIsolation, broken: true,
			must: of(0, GNonadjacent), may: of(0, G2Item)},
		{name: "read uncommitted", bug: readUncommitted, level: SnapshotIsolation, broken: true,
			must: of(0, G1a, G1b, DirtyUpdate, LostUpdate, NonRepeatableRead),
			may:  of(0, G0, G1c, GSingle, GNonadjacent, G2Item)},
	} {
		t.Run(fmt.Sprintf("%s, lists %v", test.name, test.lists), func(t *testing.T) {
			counts := map[Anomaly]int{}
			broken := 0
			const histories = 40
			for seed := range uint64(histories) {
				history := simulate(seed, test.bug, test.lists, 150)
				if test.bug != correct {
					for i := range history {
						history[i].Commit = Timestamp{}
					}
				}
				report, err := Check(history, Options{Level: test.level})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range report.Findings {
					if !slices.Contains(test.must, f.Anomaly) && !slices.Contains(test.may,
						f.Anomaly) {
						t.Errorf("seed %d: unexpected %v", seed, f)
					}
				}
				for name, n := range report.Counts {
					counts[name] += n
				}
				if report.Err() != nil {
					broken++
				}
			}
			for _, name := range test.must {
				if counts[name] == 0 {
					t.Errorf("no %s was found", name)
				}
			}
			if (broken > 0) != test.broken {
				t.Errorf("%d of %d histories broke %v", broken, histories, test.level)
			}
			t.Logf("%d of %d broken: %v", broken, histories, counts)
		})
	}
}
