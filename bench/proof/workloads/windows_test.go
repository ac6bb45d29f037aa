package workloads

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

func TestWindows(t *testing.T) {
	run := NewRun(nil)
	var closed []int64
	failing := true
	closing := func(_ context.Context, number int64) error {
		if failing {
			return errors.New("not now")
		}
		closed = append(closed, number)
		return nil
	}
	w := windows[int64]{age: time.Second, fresh: func(number int64) int64 { return number }}
	run.Began = time.Now().Add(-1500 * time.Millisecond) // in window 1
	first, again := w.enter(run.Elapsed()), w.enter(run.Elapsed())
	if first != again || first.number != 1 || len(w.list()) != 1 {
		t.Fatalf("windows %+v and %+v", first, again)
	}
	w.leave(first)
	run.Began = run.Began.Add(-10 * time.Second)
	if !w.closeDue(t.Context(), run, closing) || len(w.list()) != 1 {
		t.Fatal("a window was closed with a client in it")
	}
	w.leave(again)
	if w.closeDue(t.Context(), run, closing) || len(w.list()) != 1 {
		t.Fatal("a window that could not be closed is gone")
	}
	failing = false
	if !w.closeDue(t.Context(), run, closing) || len(closed) != 1 || len(w.list()) != 0 {
		t.Errorf("closed %v, open %v", closed, w.list())
	}
	w.leave(w.enter(run.Elapsed()))
	if err := w.closeAll(t.Context(), closing); err != nil || len(closed) != 2 {
		t.Errorf("closed %v: %v", closed, err)
	}
}

func TestIncrementalRunsForget(t *testing.T) {
	for _, incremental := range []bool{false, true} {
		run := NewRun(nil)
		run.Incremental = incremental
		run.History.Begin(history.Operation{Key: "old", Kind: history.Get}).Got(history.Value("from nowhere"))
		run.History.Begin(history.Operation{Key: "new", Kind: history.Get}).Got(history.Absent)
		run.forget(func(key string) bool { return key == "old" })
		left, found := run.History.Len(), len(run.Violations())
		if incremental && (left != 1 || found != 1) || !incremental && (left != 2 || found != 0) {
			t.Errorf("incremental %v: %d operations left, %d violations", incremental, left, found)
		}
	}
}

// TestRealTime runs registers in real time, with their windows checked and forgotten as they go.
func TestRealTime(t *testing.T) {
	cluster := startFake(t, mistakes{})
	run := NewRun(cluster.open)
	run.Incremental = true
	load := &Registers{Keyspace: "registers", Partitions: 3, Keys: 2, Age: 300 * time.Millisecond, Pause: 5 * time.Millisecond,
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
