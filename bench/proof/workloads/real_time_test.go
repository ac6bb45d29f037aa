package workloads

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRealTime runs registers in real time. Their windows are checked and dropped during the run.
func TestRealTime(t *testing.T) {
	cluster := startFake(t, mistakes{})
	run := driver.NewRun(cluster.open)
	run.Incremental = true
	load := &Registers{Keyspace: "registers", Partitions: 3, Keys: 2, Age: 300 * time.Millisecond,
		Pause:    5 * time.Millisecond,
		Parallel: 3, Readers: 1}
	if err := load.Setup(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for i := range load.Clients() {
		client, hangUp, err := run.Connect(ctx, load.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer hangUp()
		running.Go(func() { load.Drive(ctx, run, i, client, rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for run.Operations()["window"] < 3 && run.Rest(ctx, random, 20*time.Millisecond) {
	}
	cancel()
	running.Wait()
	client, hangUp, err := run.Connect(t.Context(), load.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp()
	if err := load.Check(t.Context(), run, client); err != nil {
		t.Error(err)
	}
	if n := run.Operations(); n["window"] < 3 || n["get"] == 0 || n["put"] == 0 {
		t.Errorf("operations %v", n)
	}
	if left := run.History.Len(); left != 0 {
		t.Errorf("%d operations are left of histories that are over", left)
	}
	for _, v := range run.Violations() {
		t.Error(v)
	}
}
