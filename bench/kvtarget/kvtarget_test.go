package kvtarget

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

func TestClassify(t *testing.T) {
	for want, err := range map[string]error{
		"outcome unknown": errors.Join(kv.ErrUnavailable, kv.ErrOutcomeUnknown,
			context.DeadlineExceeded),
		"no quorum": fmt.Errorf("put: %w", errors.Join(kv.ErrNoQuorum,
			context.DeadlineExceeded)),
		"disk full": kv.ErrDiskFull,
		"not found": errors.Join(bench.ErrNotFound, kv.ErrNotFound),
		"timeout":   context.DeadlineExceeded,
		"other":     errors.New("?"),
	} {
		if got := Classify(err); got != want {
			t.Errorf("%v: class %q, want %q", err, got, want)
		}
	}
}

func TestAgainstACluster(t *testing.T) {
	client := kvtest.Start(t, kvtest.Options{}).Client(t)
	keyspace, err := client.CreateKeyspace(t.Context(), "bench", kv.Hash(3))
	if err != nil {
		t.Fatal(err)
	}
	workload, err := bench.YCSB("e")
	if err != nil {
		t.Fatal(err)
	}
	result, err := bench.Run(t.Context(), New(keyspace), bench.Config{
		Workload: workload, Clients: 4, Records: 2000, ValueSize: 20, WarmUp: -1,
		Duration: 300 * time.Millisecond, Classify: Classify,
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.Total.Errors != 0 || result.Total.Count == 0 || result.Total.Rows == 0 {
		t.Errorf("%+v", result.Total)
	}
	count, err := keyspace.Count(t.Context())
	if err != nil || count < 2000 {
		t.Errorf("%d records after the load, %v", count, err)
	}
	if err := New(keyspace).Get(t.Context(), []byte("nothing")); !errors.Is(err,
		bench.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
}
