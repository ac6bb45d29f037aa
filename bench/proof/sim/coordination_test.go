package sim_test

import (
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/bench/proof/coordination"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/sim"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

// Each workload of the coordination service runs while the leader changes again and again. It finds
// no violation, and does each of its operations, by gRPC and past gRPC.
func TestCoordination(t *testing.T) {
	for i, load := range coordination.Standard() {
		t.Run(load.Name(), func(t *testing.T) {
			s, err := sim.ParseSchedule(`
				seed 3
				duration 25s
				3s +0s transfer-coordination times=4 every=300ms
				7s +2s crash server=coordination unsynced=0
				13s +3s pause server=coordination
				20s +1s isolation server=coordination mode=silent`)
			if err != nil {
				t.Fatal(err)
			}
			cryptotest.SetGlobalRandom(t, s.Seed)
			c := sim.Config{Schedule: s, Workloads: []driver.Workload{coordination.Standard()[i]}}
			var r sim.Report
			synctest.Test(t, func(t *testing.T) { r = sim.Run(t, c) })
			for _, v := range append(r.Violations, r.Later()...) {
				t.Errorf("VIOLATION %s", v)
			}
			for _, row := range r.Rows {
				if row.Calm.Succeeded+row.Storm.Succeeded == 0 {
					t.Errorf("%s never succeeded", row.Kind)
				}
			}
			for _, way := range []string{"coordination calls past gRPC", "coordination calls by gRPC"} {
				if r.Covered[way] == 0 {
					t.Errorf("there were no %s: %s", way, list(r.Covered))
				}
			}
			t.Logf("%s", list(r.Operations))
		})
	}
}

// The only member of a core loses its power again and again, with everything that is not synced,
// while its syncs are slow. Everything that it acknowledged is in its log, and every read shows it,
// even before the first entry of its new term is on the disk.
func TestCoordinationOfOneMember(t *testing.T) {
	s, err := sim.ParseSchedule(`
		seed 1
		duration 40s
		3s +30s slow-disk server=0 takes=250ms
		5s +300ms crash server=0 unsynced=0
		9s +300ms crash server=0 unsynced=0
		13s +300ms crash server=0 unsynced=0
		17s +300ms crash server=0 unsynced=0
		21s +300ms crash server=0 unsynced=0
		25s +300ms crash server=0 unsynced=0
		29s +300ms crash server=0 unsynced=0`)
	if err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, s.Seed)
	c := sim.Config{Schedule: s}
	if c.Workloads, err = workloads.Choose("etcd-txns", "etcd-locks"); err != nil {
		t.Fatal(err)
	}
	var r sim.Report
	synctest.Test(t, func(t *testing.T) { r = sim.Run(t, c) })
	for _, v := range append(r.Violations, r.Later()...) {
		t.Errorf("VIOLATION %s", v)
	}
}
