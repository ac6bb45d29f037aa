package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// pages asks every data node for its replicas. A server that does not answer has no page.
func (w *world) pages(ctx context.Context, checksums bool) (pages map[int]embedded.DebugReplicas,
	problems []string) {
	pages = make(map[int]embedded.DebugReplicas)
	path := "/debug/replicas"
	if checksums {
		path += "?checksums=true"
	}
	for i, s := range w.servers[cores:] {
		text, err := s.Page(ctx, path)
		var page embedded.DebugReplicas
		if err == nil {
			err = json.Unmarshal([]byte(text), &page)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("replicas of %s: %v", s.Name, err))
			continue
		}
		pages[cores+i] = page
	}
	return pages, problems
}

// compare describes replicas that differ although they have applied the same entries, and replicas
// that failed (violations). It also describes partitions whose replicas are not all at the same
// index (problems).
func compare(pages map[int]embedded.DebugReplicas) (violations, problems []string) {
	type copied struct {
		server int
		embedded.DebugReplica
	}
	partitions := make(map[uint64][]copied)
	for _, server := range slices.Sorted(maps.Keys(pages)) {
		for _, r := range pages[server].Replicas {
			if r.Failed != "" {
				violations = append(violations,
					fmt.Sprintf("replica %d of partition %d on server %d failed: %s", r.Replica,
						r.Partition, server, r.Failed))
			}
			if r.ChecksumError != "" {
				problems = append(problems, fmt.Sprintf("checksum of partition %d on server %d: %s",
					r.Partition, server, r.ChecksumError))
			}
			partitions[r.Partition] = append(partitions[r.Partition], copied{server, r})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(partitions)) {
		copies := partitions[id]
		equal := len(copies) == len(copies[0].Peers)
		sums := make(map[uint64]copied)
		for _, c := range copies {
			equal = equal && c.ChecksumAt == copies[0].ChecksumAt
			other, ok := sums[c.ChecksumAt]
			switch {
			case !ok:
				sums[c.ChecksumAt] = c
			case other.Checksum != c.Checksum:
				violations = append(violations,
					fmt.Sprintf("partition %d: at index %d server %d has checksum %x and server "+
						"%d has %x",
						id, c.ChecksumAt, other.server, other.Checksum, c.server, c.Checksum))
			}
		}
		if !equal {
			var at []string
			for _, c := range copies {
				at = append(at, fmt.Sprintf("server %d has applied %d", c.server, c.ChecksumAt))
			}
			problems = append(problems, fmt.Sprintf("partition %d of %d replicas: %s", id,
				len(copies[0].Peers), strings.Join(at, ", ")))
		}
	}
	return violations, problems
}

// glance compares the replicas that can be compared while clients write.
func (w *world) glance(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	pages, _ := w.pages(ctx, true)
	violations, _ := compare(pages)
	for _, v := range violations {
		w.proof.Violation("%s", v)
	}
}

// checkReplicas waits until all replicas of every partition have applied the same entries, and
// compares the replicas. No client may write meanwhile.
func (w *world) checkReplicas(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		pages, problems := w.pages(ctx, true)
		violations, unequal := compare(pages)
		for _, v := range violations {
			w.proof.Violation("%s", v)
		}
		problems = append(problems, unequal...)
		if len(violations) > 0 || len(problems) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			w.proof.Violation("replicas are not equal %v after everything was healed:\n%s",
				recovery, strings.Join(problems, "\n"))
			return
		case <-ticker.C:
		}
	}
}
