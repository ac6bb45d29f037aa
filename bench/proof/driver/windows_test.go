package driver

import (
	"context"
	"errors"
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
	w := Windows[int64]{Age: time.Second, Fresh: func(number int64) int64 { return number }}
	run.Began = time.Now().Add(-1500 * time.Millisecond) // in window 1
	first, again := w.Enter(run.Elapsed()), w.Enter(run.Elapsed())
	if first != again || first.Number != 1 || len(w.List()) != 1 {
		t.Fatalf("windows %+v and %+v", first, again)
	}
	w.Leave(first)
	run.Began = run.Began.Add(-10 * time.Second)
	if !w.CloseDue(t.Context(), run, closing) || len(w.List()) != 1 {
		t.Fatal("a window was closed with a client in it")
	}
	w.Leave(again)
	if w.CloseDue(t.Context(), run, closing) || len(w.List()) != 1 {
		t.Fatal("a window that could not be closed is gone")
	}
	failing = false
	if !w.CloseDue(t.Context(), run, closing) || len(closed) != 1 || len(w.List()) != 0 {
		t.Errorf("closed %v, open %v", closed, w.List())
	}
	w.Leave(w.Enter(run.Elapsed()))
	if err := w.CloseAll(t.Context(), closing); err != nil || len(closed) != 2 {
		t.Errorf("closed %v: %v", closed, err)
	}
}

func TestIncrementalRunsForget(t *testing.T) {
	for _, incremental := range []bool{false, true} {
		run := NewRun(nil)
		run.Incremental = incremental
		run.History.Begin(history.Operation{Key: "old", Kind: history.Get}).Got(
			history.Value("from nowhere"))
		run.History.Begin(history.Operation{Key: "new", Kind: history.Get}).Got(history.Absent)
		run.Forget(func(key string) bool { return key == "old" })
		left, found := run.History.Len(), len(run.Violations())
		if incremental && (left != 1 || found != 1) || !incremental && (left != 2 || found != 0) {
			t.Errorf("incremental %v: %d operations left, %d violations", incremental, left, found)
		}
	}
}
