package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// namedProblems is the number of problems of a kind that are named. The others are only counted.
const namedProblems = 20

// Problems are the problems of a cluster.
type Problems struct {
	// Unavailable has partitions without a leader, and the coordination store. UnderReplicated has
	// nodes that are down, or whose replicas have not caught up. Full has nodes without disk space.
	// Unhealthy has nodes with a wrong clock or failed replicas, and nodes that are not ready. Core
	// has members of the core that do not answer or have not caught up. Links has servers that do not
	// hear each other.
	Unavailable, UnderReplicated, Full, Unhealthy, Core, Links List
}

// Any reports whether there is a problem.
func (p *Problems) Any() bool { return p.Total() > 0 }

// Total returns the number of problems.
func (p *Problems) Total() int {
	return p.Unavailable.Total + p.UnderReplicated.Total + p.Full.Total + p.Unhealthy.Total +
		p.Core.Total + p.Links.Total
}

// List is a list of sentences. Only the first ones are stored.
type List struct {
	Names []string
	// Total counts all sentences, including those that are not in Names.
	Total int
}

// Add adds a problem.
func (n *List) Add(format string, args ...any) {
	n.Total++
	if len(n.Names) < namedProblems {
		n.Names = append(n.Names, fmt.Sprintf(format, args...))
	}
}

// Lines returns the names, and a line with the number of further ones.
func (n *List) Lines() []string {
	if more := n.Total - len(n.Names); more > 0 {
		return append(n.Names, fmt.Sprintf("and %d more", more))
	}
	return n.Names
}

// OfStatus returns the problems that one server knows itself. It is used when the core does not
// answer.
func OfStatus(status admin.Status) (p Problems) {
	for _, x := range status.Leaderless {
		p.Unavailable.Add("partition %d of %s: %s", x.ID, x.Keyspace,
			noLeader(x.SilentNodes, "do not answer"))
	}
	p.Unavailable.Total = max(p.Unavailable.Total, status.LeaderlessTotal)
	return p
}

// noLeader returns a sentence about a partition without a leader, with the state of its nodes.
func noLeader(nodes []uint64, what string) string {
	if len(nodes) == 0 {
		return "no leader"
	}
	return fmt.Sprintf("no leader; nodes %s %s", numbers(nodes), what)
}

// Judge collects the problems. again is set if there are problems that are usually temporary: a
// partition has no leader although most of its nodes are alive, or a node is not ready or has not
// reported yet.
func Judge(
	nodes []admin.NodeInfo, partitions []admin.PartitionInfo, core admin.Core,
) (p Problems, again bool) {
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
				if !r.Learner {
					down = append(down, r.Node)
				}
			}
		}
		quorum := voters-len(down) >= voters/2+1
		if x.Leader != 0 && alive[x.Leader] && quorum {
			continue
		}
		again = again || quorum
		p.Unavailable.Add("partition %d of %s: %s", x.ID, x.Keyspace, noLeader(down, "are down"))
	}
	for _, node := range nodes {
		if node.Status == admin.NodeGone {
			continue
		}
		if !node.Alive && lost[node.ID] == 0 {
			p.Unhealthy.Add("node %d (%s) is down, and holds nothing: \"tidemark node decommission %d\" "+
				"lets it go", node.ID, node.Address, node.ID)
			continue
		}
		if !node.Alive {
			how := "is down"
			if other := at[node.Address]; other != 0 {
				how = fmt.Sprintf("is gone, node %d is at its address", other) // its directory was lost
			}
			p.UnderReplicated.Add("node %d (%s) %s: %s", node.ID, node.Address, how,
				plural(lost[node.ID], "replica"))
			continue
		}
		if node.DiskFull {
			p.Full.Add("node %d (%s): %d MiB are free", node.ID, node.Address, node.DiskFree>>20)
		}
		if node.DiskSlow {
			slow[node.Address] = true
			p.Unhealthy.Add("node %d (%s): its disk is slow, its log takes %v to sync, many times "+
				"longer than those of others; others lead meanwhile", node.ID, node.Address,
				node.LogSync.Round(time.Millisecond))
		}
		if node.ClockUnhealthy {
			p.Unhealthy.Add("node %d (%s): its clock is wrong, or those of others are", node.ID,
				node.Address)
		}
		if n := node.FailedReplicas; n > 0 {
			p.Unhealthy.Add("node %d (%s): %s damaged or failed", node.ID, node.Address,
				plural(int(n), "replica"))
		}
		if !node.DiskFull && !node.ClockUnhealthy {
			for _, reason := range node.NotReady {
				again = true
				p.Unhealthy.Add("node %d (%s) is not ready: %s", node.ID, node.Address, reason)
			}
		}
		notReady[node.Address] = notReady[node.Address] || len(node.NotReady) > 0
	}
	again = p.judgeCopies(nodes, holds) || again
	p.judgeLinks(nodes)
	p.judgeSlow(nodes, core)
	p.judgeCore(core, notReady, slow)
	return p, again
}

// plural formats a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func numbers(ids []uint64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]")
}
