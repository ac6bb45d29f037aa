package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

const (
	// namedProblems is how many problems of a kind are named; the others are counted.
	namedProblems = 20
	// secondLooks is how often the command looks again at partitions without a known leader whose
	// nodes are alive: after a change of its own leader, the core hears of theirs within some
	// seconds.
	secondLooks    = 4
	secondLookWait = time.Second
)

// problems are the problems of a cluster.
type problems struct {
	// unavailable are partitions without a leader, or the coordination store. underReplicated are
	// nodes that are down, or whose replicas have not caught up; full those without room, and
	// unhealthy those whose clock or replicas are not in order, or that are not ready. core are
	// members of the core that do not answer or have not caught up, and links are servers that do not
	// hear each other.
	unavailable, underReplicated, full, unhealthy, core, links named
}

func (p *problems) any() bool {
	return p.unavailable.total+p.underReplicated.total+p.full.total+p.unhealthy.total+
		p.core.total+p.links.total > 0
}

// named is a list of which only the first elements are named.
type named struct {
	names []string
	total int
}

func (n *named) add(format string, args ...any) {
	n.total++
	if len(n.names) < namedProblems {
		n.names = append(n.names, fmt.Sprintf(format, args...))
	}
}

// cell returns the list for programs; null if it is empty because the state is not known.
func (n *named) cell(known bool) any {
	switch {
	case n.total == 0 && !known:
		return nil
	case n.total == 0:
		return []string{}
	}
	return n.lines()
}

// lines are the names, and how many more there are.
func (n *named) lines() []string {
	if more := n.total - len(n.names); more > 0 {
		return append(n.names, fmt.Sprintf("and %d more", more))
	}
	return n.names
}

// print lists, below the table of status, the problems that are too long for a column, one a line.
func (p *problems) print(out io.Writer, screen output.Screen, core []string, waiting string) {
	say := func(tone output.Tone, what string, lines ...string) {
		for _, line := range lines {
			text := screen.Text(what + ": " + output.Plain(line) + "\n")
			fmt.Fprint(out, screen.Paint(tone, what), text[len(what):])
		}
	}
	if len(core) > 1 {
		say(output.Plainly, "core", strings.Join(core, ", "))
	}
	if waiting != "" {
		say(output.Warning, "not ready", waiting)
	}
	say(output.Bad, "unavailable", p.unavailable.lines()...)
	say(output.Warning, "under replicated", p.underReplicated.lines()...)
	say(output.Warning, "full", p.full.lines()...)
	say(output.Warning, "unhealthy", p.unhealthy.lines()...)
	say(output.Warning, "core at risk", p.core.lines()...)
	say(output.Warning, "cut off", p.links.lines()...)
}

// problemsOf returns the problems that one server knows by itself, for when the core does not
// answer.
func problemsOf(status admin.Status) (p problems) {
	for _, x := range status.Leaderless {
		p.unavailable.add("partition %d of %s: %s", x.ID, x.Keyspace,
			noLeader(x.SilentNodes, "do not answer"))
	}
	p.unavailable.total = max(p.unavailable.total, status.LeaderlessTotal)
	return p
}

// noLeader returns the text that a partition has no leader, with the state of its nodes.
func noLeader(nodes []uint64, what string) string {
	if len(nodes) == 0 {
		return "no leader"
	}
	return fmt.Sprintf("no leader; nodes %s %s", numbers(nodes), what)
}

// lookForProblems asks the core. status is the answer of the server that was asked first: that this
// server is not ready is not reported twice.
func (a *app) lookForProblems(ctx context.Context, client *kv.Client,
	nodes []admin.NodeInfo, status admin.Status) (problems, error) {
	for look := 0; ; look++ {
		partitions, err := admin.New(client).Partitions(ctx, "")
		if err != nil {
			return problems{}, err
		}
		core, err := admin.New(client).CoreHealth(ctx)
		if err != nil {
			return problems{}, err
		}
		for i := range nodes {
			if nodes[i].ID == status.Node && !status.Ready {
				nodes[i].NotReady = nil
			}
		}
		found, again := judge(nodes, partitions, core)
		if !again || look == secondLooks {
			return found, nil
		}
		select {
		case <-time.After(secondLookWait):
		case <-ctx.Done():
			return found, nil
		}
		if nodes, err = admin.New(client).Nodes(ctx); err != nil {
			return problems{}, err
		}
	}
}

// judge collects the problems. again: a partition has no leader although most of its nodes are
// alive, or a node is not ready or has not reported yet; these problems usually pass.
func judge(
	nodes []admin.NodeInfo, partitions []admin.PartitionInfo, core admin.Core,
) (p problems, again bool) {
	alive, lost := make(map[uint64]bool, len(nodes)), make(map[uint64]int)
	at, holds := make(map[string]uint64), make(map[uint64]bool)
	notReady, slow := make(map[string]bool), make(map[string]bool)
	for _, node := range nodes {
		alive[node.ID] = node.Alive
		if node.Alive {
			at[node.Address] = node.ID
		}
	}
	for _, x := range partitions {
		var down []uint64
		voters := 0
		for _, r := range x.Replicas {
			if !r.Learner {
				voters++
			}
			holds[r.Node] = true
			if !alive[r.Node] {
				lost[r.Node]++
				down = append(down, r.Node)
			}
		}
		quorum := voters-len(down) >= voters/2+1
		if x.Leader != 0 && alive[x.Leader] && quorum {
			continue
		}
		again = again || quorum
		p.unavailable.add("partition %d of %s: %s", x.ID, x.Keyspace, noLeader(down, "are down"))
	}
	for _, node := range nodes {
		if node.Status == admin.NodeGone {
			continue
		}
		if !node.Alive && lost[node.ID] == 0 {
			p.unhealthy.add("node %d (%s) is down, and holds nothing: \"tidemark node decommission %d\" "+
				"lets it go", node.ID, node.Address, node.ID)
			continue
		}
		if !node.Alive {
			how := "is down"
			if other := at[node.Address]; other != 0 {
				how = fmt.Sprintf("is gone, node %d is at its address", other) // its directory was lost
			}
			p.underReplicated.add("node %d (%s) %s: %s", node.ID, node.Address, how,
				plural(lost[node.ID], "replica"))
			continue
		}
		if node.DiskFull {
			p.full.add("node %d (%s): %d MiB are free", node.ID, node.Address, node.DiskFree>>20)
		}
		if node.DiskSlow {
			slow[node.Address] = true
			p.unhealthy.add("node %d (%s): its disk is slow, its log takes %v to sync, many times "+
				"longer than those of others; others lead meanwhile", node.ID, node.Address,
				node.LogSync.Round(time.Millisecond))
		}
		if node.ClockUnhealthy {
			p.unhealthy.add("node %d (%s): its clock is wrong, or those of others are", node.ID,
				node.Address)
		}
		if n := node.FailedReplicas; n > 0 {
			p.unhealthy.add("node %d (%s): %s damaged or failed", node.ID, node.Address,
				plural(int(n), "replica"))
		}
		if !node.DiskFull && !node.ClockUnhealthy {
			for _, reason := range node.NotReady {
				again = true
				p.unhealthy.add("node %d (%s) is not ready: %s", node.ID, node.Address, reason)
			}
		}
		notReady[node.Address] = notReady[node.Address] || len(node.NotReady) > 0
	}
	again = p.judgeCopies(nodes, holds) || again
	p.judgeLinks(nodes)
	p.judgeCore(core, notReady, slow)
	return p, again
}
