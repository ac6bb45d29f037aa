package sim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// targets is the syntax of a target.
var targets = regexp.MustCompile(
	`^([0-9]{1,6}|core|coordination|leader\.[0-9]{1,6}|follower\.[0-9]{1,6}\.[0-9]{1,6})$`)

// check reports a target with a wrong syntax.
func (t Target) check() error {
	if !targets.MatchString(string(t)) {
		return fmt.Errorf("%q is no number of a server, nor core, coordination, leader.N "+
			"or follower.N.M",
			string(t))
	}
	return nil
}

// find returns the server that a target names at the moment; false if there is none.
func (w *World) find(t Target) (server int, ok bool) {
	if n, err := strconv.Atoi(string(t)); err == nil {
		return n, n >= 0 && n < w.Cluster.Servers()
	}
	switch t {
	case "core":
		return w.leads((*embedded.Server).LeadsCore)
	case coordinationLeader:
		return w.leads((*embedded.Server).LeadsCoordination)
	}
	words := strings.Split(string(t), ".")
	var at, which int
	for i, n := range []*int{&at, &which} {
		if len(words) > i+1 {
			*n, _ = strconv.Atoi(words[i+1])
		}
	}
	_, leader, followers, ok := w.partition(at)
	if ok && words[0] == "follower" {
		return followers[which%max(1, len(followers))], true
	}
	return leader, ok
}

// leads returns the first server for which says returns true.
func (w *World) leads(says func(*embedded.Server) bool) (server int, ok bool) {
	for i := range w.Cluster.Servers() {
		if p := w.Cluster.Process(i); p != nil && says(p) {
			return i, true
		}
	}
	return 0, false
}

// partition returns the partition at an index (modulo the number of partitions), the server that
// leads it, and the servers that follow; false if no replica leads it at the moment, or none
// follows.
func (w *World) partition(at int) (id uint64, leader int, followers []int, ok bool) {
	holders := make(map[uint64][]int)
	leaders := make(map[uint64]int)
	terms := make(map[uint64]uint64)
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		for _, r := range p.Replicas() {
			holders[r.Partition] = append(holders[r.Partition], i)
			if r.Leads && r.Term >= terms[r.Partition] {
				leaders[r.Partition], terms[r.Partition] = i, r.Term
			}
		}
	}
	if len(holders) == 0 {
		return 0, 0, nil, false
	}
	ids := slices.Sorted(maps.Keys(holders))
	id = ids[at%len(ids)]
	leader, led := leaders[id]
	for _, i := range holders[id] {
		if i != leader {
			followers = append(followers, i)
		}
	}
	return id, leader, followers, led && len(followers) > 0
}

// absent is the result of a fault whose target does not exist.
func absent(t Target) (string, func() string) { return fmt.Sprintf("there is no %s", t), nil }
