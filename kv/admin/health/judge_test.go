package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// What status says is wrong is named, and nothing else.
func TestJudge(t *testing.T) {
	nodes := []admin.NodeInfo{{ID: 1, Address: "10.0.0.1:7400", Alive: true},
		{ID: 2, Address: "10.0.0.2:7400", Alive: true}, {ID: 3, Address: "10.0.0.3:7400", Alive: true}}
	replicas := []admin.ReplicaInfo{{Node: 1}, {Node: 2}, {Node: 3}}
	partitions := []admin.PartitionInfo{{ID: 7, Keyspace: "things", Replicas: replicas, Leader: 3},
		{ID: 8, Keyspace: "things", Replicas: replicas, Leader: 1}}
	if p, again := Judge(nodes, partitions, admin.Core{}); p.Any() || again {
		t.Errorf("all is well, and it is said: %+v", p)
	}
	nodes[2].Alive, nodes[0].DiskFull, nodes[1].ClockUnhealthy, nodes[1].FailedReplicas =
		false, true, true, 2
	p, again := Judge(nodes, partitions, admin.Core{})
	if p.Unavailable.Total != 1 ||
		!strings.Contains(p.Unavailable.Names[0], "partition 7 of things") || !again {
		t.Errorf("a partition whose leader is down: %+v, again %v", p.Unavailable, again)
	}
	nodes[1].DiskSlow, nodes[1].LogSync = true, 40*time.Millisecond
	if slow, _ := Judge(nodes, partitions, admin.Core{}); !slices.ContainsFunc(slow.Unhealthy.Names,
		func(s string) bool { return strings.Contains(s, "its disk is slow, its log takes 40ms") }) {
		t.Errorf("a node's disk is slow: %+v", slow.Unhealthy)
	}
	nodes[1].DiskSlow = false
	if p.UnderReplicated.Total != 1 || p.Full.Total != 1 || p.Unhealthy.Total != 2 {
		t.Errorf("one node is down, one full, one unhealthy for two reasons: %+v", p)
	}
	// The server at its address is another node now, which has begun with an empty directory.
	wiped := append(slices.Clone(nodes), admin.NodeInfo{ID: 4, Address: nodes[2].Address,
		Alive: true})
	if p, _ := Judge(wiped, partitions, admin.Core{}); p.UnderReplicated.Names[0] !=
		"node 3 (10.0.0.3:7400) "+
			"is gone, node 4 is at its address: 2 replicas" {
		t.Errorf("a node whose directory was lost: %q", p.UnderReplicated.Names)
	}
	nodes[1].Alive = false
	if p, again = Judge(nodes, partitions, admin.Core{}); p.Unavailable.Total != 2 || again ||
		!strings.Contains(p.Unavailable.Names[1], "nodes 2, 3 are down") {
		t.Errorf("two of three nodes are down: %+v, again %v", p.Unavailable, again)
	}
	var many List
	for range 3 * namedProblems {
		many.Add("x")
	}
	if lines := many.Lines(); len(lines) != namedProblems+1 || lines[namedProblems] != "and 40 more" {
		t.Errorf("%d of %d are named, the last is %q", len(lines), many.Total, lines[len(lines)-1])
	}
}

// A learner does not vote: without it a partition is served, and the node's replica is missing.
func TestJudgeLearner(t *testing.T) {
	nodes := []admin.NodeInfo{{ID: 1, Alive: true}, {ID: 2, Alive: true}, {ID: 3, Address: "c"},
		{ID: 4, Address: "d"}}
	for _, replicas := range [][]admin.ReplicaInfo{
		{{Node: 1}, {Node: 2}, {Node: 3}, {Node: 4, Learner: true}},
		{{Node: 1}, {Node: 4, Learner: true}},
		{{Node: 1}, {Node: 3, Learner: true}, {Node: 4, Learner: true}},
	} {
		p, again := Judge(nodes, []admin.PartitionInfo{{ID: 7, Replicas: replicas, Leader: 1}},
			admin.Core{})
		if p.Unavailable.Total != 0 || again || !strings.Contains(strings.Join(
			p.UnderReplicated.Names, "\n"), "node 4 (d) is down: 1 replica") {
			t.Errorf("%v: %+v, again %v", replicas, p, again)
		}
	}
}

// What is wrong with the core and the coordination store is named, one server at a time once.
func TestJudgeCore(t *testing.T) {
	well := func() admin.Core {
		c := admin.Core{}
		for id := range uint64(5) {
			m := admin.CoreMemberInfo{ID: id + 1, Address: string('a'+rune(id)) + ":1", Role: "voter",
				Answers: true, Leader: id == 0, LeadsCoordination: id == 1,
				Health: &admin.CoreMemberHealth{CoordinationOpen: true}}
			c.Members = append(c.Members, m)
		}
		for _, id := range []uint64{1, 3, 4, 5} {
			c.Members[1].Health.Coordination = append(c.Members[1].Health.Coordination,
				admin.CoordinationFollower{ID: id, Answers: true})
		}
		return c
	}
	for _, c := range []struct {
		name   string
		change func(m []admin.CoreMemberInfo)
		want   []string
	}{
		{"all is well", func([]admin.CoreMemberInfo) {}, nil},
		{"an older version says nothing", func(m []admin.CoreMemberInfo) {
			for i := range m {
				m[i].Health = nil
			}
		}, nil},
		{"a learner that catches up", func(m []admin.CoreMemberInfo) {
			m[4].Role, m[4].Snapshot, m[4].Behind = "learner", true, 1000
			m[1].Health.Coordination[3].Snapshot = true
		}, nil},
		{"one does not answer", func(m []admin.CoreMemberInfo) {
			m[4].Answers, m[4].Health = false, nil
			m[1].Health.Coordination[3].Answers = false
			m[0].Health.Silent, m[1].Health.Silent = []uint64{5}, []uint64{5}
		}, []string{"member 5 (e:1) does not answer", "4 of 5 voters of the core answer: 1 more may fail",
			"4 of 5 voters of the coordination store answer: 1 more may fail"}},
		{"one is behind", func(m []admin.CoreMemberInfo) { m[2].Behind = 65 },
			[]string{"member 3 (c:1) has not caught up: it lacks 65 entries"}},
		{"one is nearly there", func(m []admin.CoreMemberInfo) { m[2].Behind = 64 }, nil},
		{"one is filled", func(m []admin.CoreMemberInfo) { m[2].Snapshot = true },
			[]string{"member 3 (c:1) has not caught up: it is sent the state"}},
		{"one part of the coordination store is behind", func(m []admin.CoreMemberInfo) {
			m[1].Health.Coordination[0].Behind = 100
		}, []string{"the part of member 1 (a:1) of the coordination store has not caught up: it lacks " +
			"100 entries"}},
		{"one part of the coordination store has failed", func(m []admin.CoreMemberInfo) {
			m[2].Health.CoordinationFailed, m[1].Health.Coordination[1].Answers = "a bad block", false
		}, []string{"the part of member 3 (c:1) of the coordination store has failed: a bad block",
			"4 of 5 voters of the coordination store answer: 1 more may fail"}},
		{"the coordination store has no leader", func(m []admin.CoreMemberInfo) {
			m[1].LeadsCoordination = false
		}, []string{"the coordination store (locks, leases, the etcd API): no leader"}},
		{"its leader is the one that does not answer", func(m []admin.CoreMemberInfo) {
			m[1].Answers, m[1].Health = false, nil
		}, []string{"the coordination store (locks, leases, the etcd API): no leader",
			"member 2 (b:1) does not answer", "4 of 5 voters of the core answer: 1 more may fail"}},
		{"one way is cut", func(m []admin.CoreMemberInfo) { m[3].Health.Silent = []uint64{3} },
			[]string{"core member 4 (d:1) does not hear member 3 (c:1)"}},
		{"both ways are cut", func(m []admin.CoreMemberInfo) {
			m[3].Health.Silent, m[2].Health.Silent = []uint64{3}, []uint64{4}
		}, []string{"core member 3 (c:1) and member 4 (d:1) do not hear each other"}},
		{"alarms, which all members have", func(m []admin.CoreMemberInfo) {
			for i := range m {
				m[i].Health.Alarms = []admin.CoordinationAlarm{{Type: "NOSPACE", Server: 0xab},
					{Type: "CORRUPT", Server: 0xcd}}
			}
		}, []string{"the coordination store takes no puts: alarm NOSPACE of member ab",
			"the coordination store takes no writes: alarm CORRUPT of member cd"}},
		{"a server is not ready", func(m []admin.CoreMemberInfo) {
			m[0].Health.NotReady, m[1].Health.NotReady = []string{"its disk"}, []string{"its clock"}
		}, []string{"the server of core member 2 (b:1) is not ready: its clock"}}, // a:1 is a node's
		{"disks are slow or stand still", func(m []admin.CoreMemberInfo) {
			m[1].Health.DiskSlow = true // b:1 is that of a node, which is named
			m[2].Health.DiskSlow, m[2].Health.LogSync = true, 40*time.Millisecond
			m[3].Health.DiskSlow, m[3].Health.DiskStalled = true, true
		}, []string{"core member 3 (c:1): its disk is slow, its log takes 40ms to sync, many times " +
			"longer than those of others; others lead meanwhile",
			"core member 4 (d:1): its disk stands still, no write to its log ends; others lead " +
				"meanwhile"}},
	} {
		core := well()
		c.change(core.Members)
		var p Problems
		p.judgeCore(core, map[string]bool{"a:1": true},
			map[string]bool{"b:1": true})
		got := slices.Concat(p.Unavailable.Names, p.UnderReplicated.Names, p.Full.Names,
			p.Unhealthy.Names, p.Core.Names, p.Links.Names)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q\nwant\n%q", c.name, got, c.want)
		}
	}
}
