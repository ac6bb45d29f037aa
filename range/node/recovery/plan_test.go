package recovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/group"
)

// members are voters with the ids of their nodes, but for the roles that are given.
func members(nodes []uint64, roles map[uint64]group.Role) (all []Member) {
	for _, n := range nodes {
		role := roles[n]
		if role == 0 {
			role = group.Voter
		}
		all = append(all, Member{Replica: n, Node: n, Role: role})
	}
	return all
}

func described(membership uint64, all []Member) Partition {
	return Partition{Partition: 100, Keyspace: 7, Generation: 1, Membership: membership,
		NextReplica: 10, Members: all}
}

// survey is that of a node with one replica, whose log ends with an entry.
func survey(node uint64, d Partition, term, index uint64) *Survey {
	s := &Survey{Format: Format, Cluster: "c", Server: fmt.Sprint(node), Node: node,
		Nodes: []uint64{node}}
	for _, m := range d.Members {
		s.Nodes = append(s.Nodes, m.Node)
	}
	s.Replicas = []Replica{{Partition: 100, Replica: node, Descriptor: d, LastTerm: term,
		LastIndex: index, Digest: fmt.Sprint(node, term, index)}}
	return s
}

func TestPlansOfOnePartition(t *testing.T) {
	three, four := members([]uint64{1, 2, 3}, nil), members([]uint64{1, 2, 3, 4}, nil)
	broken := survey(1, described(1, three), 5, 50)
	broken.Replicas[0].Broken = "it is damaged"
	listed := survey(1, described(1, three), 5, 50)
	listed.Table = []Partition{described(4, three)}
	moved := survey(1, described(1, three), 5, 50)
	moved.Table = []Partition{described(4, members([]uint64{4, 5, 6}, nil))}
	moved.Nodes = append(moved.Nodes, 4, 5, 6)
	// The end of a move from node 1 to node 4 is in a log, and may be committed or not.
	joint := described(2, members([]uint64{1, 2, 3, 4}, map[uint64]group.Role{1: group.Outgoing,
		4: group.Incoming}))
	ended := described(3, members([]uint64{2, 3, 4}, nil))
	moving := func(node uint64, index uint64) *Survey {
		s := survey(node, ended, 5, index)
		s.Replicas[0].Known = &joint
		s.Nodes = append(s.Nodes, 1)
		return s
	}
	knowing := moving(4, 51)
	knowing.Replicas[0].Known = &ended
	for name, c := range map[string]struct {
		surveys []*Survey
		lost    []uint64
		// on is the node it goes on at, 0: there is nothing to do; gone: no replica is left.
		on      uint64
		gone    bool
		mayLack bool
		// least are the membership and the replica id above which the new ones have to be.
		least uint64
		note  string
	}{
		"one of three": {surveys: []*Survey{survey(1, described(1, three), 5, 50)},
			lost: []uint64{2, 3}, on: 1, mayLack: true, least: 1000},
		"two of three": {surveys: []*Survey{survey(1, described(1, three), 5, 50),
			survey(2, described(1, three), 5, 50)}, lost: []uint64{3}},
		// What was acknowledged had three of four, and two are lost.
		"two of four": {surveys: []*Survey{survey(1, described(9, four), 5, 50),
			survey(2, described(9, four), 5, 51)}, lost: []uint64{3, 4}, on: 2, least: 1009},
		"one of two": {surveys: []*Survey{survey(1, described(3, members([]uint64{1, 2}, nil)), 5, 50)},
			lost: []uint64{2}, on: 1, least: 1003},
		"the later term, not the longer log": {surveys: []*Survey{survey(1, described(1, four), 5, 90),
			survey(2, described(1, four), 6, 50)}, lost: []uint64{3, 4}, on: 2},
		"a learner has more": {surveys: []*Survey{
			survey(1, described(2, members([]uint64{1, 2, 3, 4},
				map[uint64]group.Role{4: group.Learner})), 5, 50),
			survey(4, described(2, members([]uint64{1, 2, 3, 4},
				map[uint64]group.Role{4: group.Learner})), 5, 60)},
			lost: []uint64{2, 3}, on: 4, mayLack: true},
		"a voter before a learner that has the same": {surveys: []*Survey{
			survey(1, described(2, members([]uint64{1, 2, 3, 4},
				map[uint64]group.Role{1: group.Learner})), 5, 50),
			survey(4, described(2, members([]uint64{1, 2, 3, 4},
				map[uint64]group.Role{1: group.Learner})), 5, 50)},
			lost: []uint64{2, 3}, on: 4, mayLack: true},
		// A majority of the old voters lives, and none of the new ones.
		"joint": {surveys: []*Survey{
			survey(1, described(5, members([]uint64{1, 2, 3, 4, 5}, map[uint64]group.Role{
				2: group.Outgoing, 3: group.Outgoing, 4: group.Incoming, 5: group.Incoming})), 5, 50),
			survey(2, described(5, members([]uint64{1, 2, 3, 4, 5}, map[uint64]group.Role{
				2: group.Outgoing, 3: group.Outgoing, 4: group.Incoming, 5: group.Incoming})), 5, 49)},
			lost: []uint64{3, 4, 5}, on: 1},
		"one of two survivors is damaged": {surveys: []*Survey{broken,
			survey(2, described(1, three), 5, 50)}, lost: []uint64{3}, on: 2, mayLack: true,
			note: "the replica on node 1 is of no use: it is damaged"},
		"the only survivor is damaged": {surveys: []*Survey{broken}, lost: []uint64{2, 3}, gone: true},
		"the survivors lag behind a change": {surveys: []*Survey{listed}, lost: []uint64{2, 3}, on: 1,
			mayLack: true, least: 1004, note: "the core had listed a later change"},
		"the survivor was taken out": {surveys: []*Survey{moved}, lost: []uint64{2, 3, 4, 5, 6},
			gone: true},
		"the end of a move may not be committed": {surveys: []*Survey{moving(3, 50), moving(4, 51)},
			lost: []uint64{1, 2}, on: 4},
		"only the one that leaves lives": {surveys: []*Survey{moving(1, 50)}, lost: []uint64{2, 3, 4},
			on: 1, mayLack: true},
		"the end of a move is committed": {surveys: []*Survey{moving(3, 50), knowing},
			lost: []uint64{1, 2}},
		"the latest replicas live": {surveys: []*Survey{moved,
			survey(4, described(4, members([]uint64{4, 5, 6}, nil)), 7, 70),
			survey(5, described(4, members([]uint64{4, 5, 6}, nil)), 7, 70)}, lost: []uint64{2, 3, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Make(c.surveys, c.lost, "id", "now")
			switch {
			case c.on == 0 && !c.gone:
				if !errors.Is(err, ErrNothing) {
					t.Fatalf("%v; want that there is nothing to do", err)
				}
				return
			case err != nil:
				t.Fatal(err)
			case c.gone:
				if len(p.Gone) != 1 || len(p.Recovered) != 0 {
					t.Errorf("recovered: %v, gone: %v", p.Recovered, p.Gone)
				}
				return
			case len(p.Recovered) != 1:
				t.Fatalf("recovered: %v", p.Recovered)
			}
			r := p.Recovered[0]
			if r.Node != c.on || r.MayLack != c.mayLack || r.Membership < c.least || r.Replica < 1010 ||
				r.OldReplica != c.on {
				t.Errorf("it goes on like this: %+v", r)
			}
			if notes := strings.Join(r.Notes, "; "); !strings.Contains(notes, c.note) {
				t.Errorf("notes: %s", notes)
			}
			if err := p.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNothingCommittedIsLeftBehind: whatever Raft can have left on the replicas, the one that goes
// on has every entry that a survivor knows to be committed; and where the plan says that no
// acknowledged write is missing, it has all that was committed.
func TestNothingCommittedIsLeftBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "replicas")
		logs := make([][]uint64, n) // terms of the entries
		known := make([]int, n)     // entries known to be committed
		committed := 0              // of the longest
		var truth []uint64
		// A history of terms: in each a leader with an up-to-date log appends, and some follow.
		terms := rapid.Uint64Range(2, 8).Draw(t, "terms")
		for term := uint64(1); term <= terms; term++ {
			leader := rapid.IntRange(0, n-1).Draw(t, "leader")
			votes := 0
			for _, log := range logs {
				if !ahead(log, logs[leader]) {
					votes++
				}
			}
			if votes <= n/2 {
				continue
			}
			alone := rapid.Bool().Draw(t, "alone") // cut off, it appends what no other gets
			for range rapid.IntRange(1, 4).Draw(t, "entries") {
				logs[leader] = append(slices.Clone(logs[leader]), term)
				have := 1
				for f := range logs {
					if f != leader && !alone && rapid.IntRange(0, 3).Draw(t, "follows") > 0 {
						logs[f] = slices.Clone(logs[leader])
						have++
					}
				}
				if have > n/2 {
					committed, truth = len(logs[leader]), logs[leader]
					for f := range logs {
						if slices.Equal(logs[f], truth) && rapid.Bool().Draw(t, "hears of it") {
							known[f] = committed
						}
					}
				}
			}
		}
		var nodes, lost []uint64
		for i := range logs {
			nodes = append(nodes, uint64(i+1))
		}
		var surveys []*Survey
		for i, log := range logs {
			if rapid.Bool().Draw(t, "lost") {
				lost = append(lost, uint64(i+1))
				continue
			}
			term := uint64(0)
			if len(log) > 0 {
				term = log[len(log)-1]
			}
			surveys = append(surveys, survey(uint64(i+1), described(1, members(nodes, nil)), term,
				uint64(len(log))))
		}
		p, err := Make(surveys, lost, "id", "now")
		if err != nil || len(p.Recovered) == 0 {
			return
		}
		chosen := logs[p.Recovered[0].Node-1]
		for _, s := range surveys {
			for i := range known[s.Node-1] {
				if i >= len(chosen) || chosen[i] != truth[i] {
					t.Fatalf("node %d knows that entry %d is committed, and %v goes on", s.Node, i+1, chosen)
				}
			}
		}
		if !p.Recovered[0].MayLack &&
			(len(chosen) < committed || !slices.Equal(chosen[:committed], truth[:committed])) {
			t.Fatalf("%v was committed up to %d, and %v goes on", truth, committed, chosen)
		}
	})
}

// ahead says whether a log is more up to date than another.
func ahead(a, b []uint64) bool {
	var x, y uint64
	if len(a) > 0 {
		x = a[len(a)-1]
	}
	if len(b) > 0 {
		y = b[len(b)-1]
	}
	return x > y || x == y && len(a) > len(b)
}

func TestDirectoriesOfTwoClusters(t *testing.T) {
	a := survey(1, described(1, members([]uint64{1, 2, 3}, nil)), 5, 50)
	b := survey(2, described(1, members([]uint64{1, 2, 3}, nil)), 5, 50)
	b.Cluster = "another"
	if _, err := Make([]*Survey{a, b}, []uint64{3}, "id", "now"); err == nil {
		t.Error("a plan over two clusters")
	}
}
