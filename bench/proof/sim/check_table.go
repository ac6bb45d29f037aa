package sim

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// checkStates compares the state on each server's disk with the state that its replicas report.
func (w *World) checkStates(ctx context.Context) {
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		problems, err := p.CheckState(ctx)
		if err != nil {
			w.Violation("reading the state of server %d: %v", i, err)
		}
		for _, problem := range problems {
			w.Violation("server %d: %s", i, problem)
		}
	}
}

// checkPlaces waits until each server has exactly the replicas that the table gives its node, and
// no replica is frozen.
func (w *World) checkPlaces(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking for replicas that are in no table: %v", err)
		return
	}
	defer client.Close()
	problems := []string{"not looked at yet"}
	for ctx.Err() == nil {
		if problems = w.places(ctx, client); len(problems) == 0 {
			return
		}
		sleep(ctx, 500*time.Millisecond)
	}
	w.Violation("the cluster is whole again, and servers do not have the replicas that the table "+
		"gives them:\n%s", strings.Join(problems, "\n"))
}

// places lists the differences between the servers' replicas and the table, and the frozen
// replicas.
func (w *World) places(ctx context.Context, client *kv.Client) (problems []string) {
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		return []string{fmt.Sprintf("the table is not known: %v", err)}
	}
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil {
			continue
		}
		here := make(map[uint64]bool)
		for _, r := range p.Replicas() {
			here[r.Partition] = true
			if r.FrozenFor != 0 {
				problems = append(problems, fmt.Sprintf("server %d: replica %d of partition %d is frozen "+
					"for partition %d", i, r.Replica, r.Partition, r.FrozenFor))
			}
		}
		for _, t := range partitions {
			if !slices.ContainsFunc(t.Replicas,
				func(r admin.ReplicaInfo) bool { return r.Node == p.NodeID() }) {
				continue
			}
			if !here[t.ID] {
				problems = append(problems, fmt.Sprintf("server %d has no replica of partition %d",
					i, t.ID))
			}
			delete(here, t.ID)
		}
		for _, id := range slices.Sorted(maps.Keys(here)) {
			problems = append(problems, fmt.Sprintf("server %d has a replica of partition %d, which the "+
				"table does not give node %d", i, id, p.NodeID()))
		}
	}
	return problems
}

// checkTable checks that each key of each keyspace is in exactly one partition.
func (w *World) checkTable(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking at the partitions: %v", err)
		return
	}
	defer client.Close()
	all, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		w.Violation("looking at the partitions: %v", err)
		return
	}
	all = inOrder(all)
	for i, p := range all {
		first := i == 0 || all[i-1].Keyspace != p.Keyspace || all[i-1].Hash != p.Hash
		last := i+1 == len(all) || all[i+1].Keyspace != p.Keyspace || all[i+1].Hash != p.Hash
		switch {
		case first && len(p.Start) > 0:
			w.Violation("no partition has what comes before %q in keyspace %s", p.Start, p.Keyspace)
		case last && len(p.End) > 0:
			w.Violation("no partition has what comes from %q on in keyspace %s", p.End, p.Keyspace)
		case !last && !bytes.Equal(p.End, all[i+1].Start):
			w.Violation("partition %d ends at %q, and partition %d begins at %q", p.ID, p.End,
				all[i+1].ID, all[i+1].Start)
		}
	}
}
