package sim_test

import (
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/bench/proof/coordination"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/sim"
)

// Each workload of the coordination service runs while that has one leader after another, finds
// nothing, and does each of its operations.
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
			t.Logf("%s", list(r.Operations))
		})
	}
}
