package main

import (
	"testing"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

func TestCompare(t *testing.T) {
	peers := []uint64{1, 2, 3}
	replica := func(at, sum uint64) embedded.DebugReplica {
		return embedded.DebugReplica{Partition: 7, Peers: peers, ChecksumAt: at, Checksum: sum}
	}
	for _, c := range []struct {
		name                 string
		replicas             []embedded.DebugReplica
		violations, problems int
	}{
		{"equal", []embedded.DebugReplica{replica(5, 1), replica(5, 1), replica(5, 1)}, 0, 0},
		{"one lags", []embedded.DebugReplica{replica(5, 1), replica(4, 9), replica(5, 1)}, 0, 1},
		{"one is missing", []embedded.DebugReplica{replica(5, 1), replica(5, 1)}, 0, 1},
		{"one differs", []embedded.DebugReplica{replica(5, 1), replica(5, 2), replica(5, 1)}, 1, 0},
		{"two of those that lag differ", []embedded.DebugReplica{replica(6, 1), replica(5, 2),
			replica(5, 3)}, 1, 1},
		{"one failed", []embedded.DebugReplica{replica(5, 1), {Partition: 7, Peers: peers,
			ChecksumAt: 5, Checksum: 1, Failed: "x"}, replica(5, 1)}, 1, 0},
		{"a sum is missing", []embedded.DebugReplica{replica(5, 1), {Partition: 7, Peers: peers,
			ChecksumError: "x"}, replica(5, 1)}, 0, 2},
	} {
		pages := make(map[int]embedded.DebugReplicas)
		for i, r := range c.replicas {
			pages[i] = embedded.DebugReplicas{Replicas: []embedded.DebugReplica{r}}
		}
		violations, problems := compare(pages)
		if len(violations) != c.violations || len(problems) != c.problems {
			t.Errorf("%s: violations %q, problems %q; want %d and %d", c.name, violations, problems,
				c.violations, c.problems)
		}
	}
}
