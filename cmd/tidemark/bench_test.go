package main

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
)

func TestBenchLine(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		p    bench.Progress
		want string
	}{
		{bench.Progress{Phase: "load", Records: 1, RecordsTotal: 1, Rate: 2},
			"load     1 of 1 record (100 %), 2/s"},
		{bench.Progress{Phase: "load", Records: 512, RecordsTotal: 1024, Rate: 2},
			"load     512 of 1024 records (50 %), 2/s"},
		{bench.Progress{Phase: "warm-up", Elapsed: 200 * ms, Total: 200 * ms, Rate: 7, Mean: ms},
			"warm-up  0.2 of 0.2 s         7 ops/s  mean 1ms"},
		{bench.Progress{Phase: "warm-up", Elapsed: 5 * ms, Total: 5 * ms, Rate: 7, Mean: ms},
			"warm-up  0.005 of 0.005 s         7 ops/s  mean 1ms"},
		{bench.Progress{Phase: "measure", Elapsed: 1001 * ms, Total: 1500 * ms, Rate: 7, Mean: ms,
			Errors: 1}, "measure  1.0 of 1.5 s         7 ops/s  mean 1ms  1 error"},
		{bench.Progress{Phase: "measure", Elapsed: 3001 * ms, Total: 10 * time.Second, Rate: 7,
			Mean: ms, Errors: 2}, "measure    3 of 10 s         7 ops/s  mean 1ms  2 errors"},
	} {
		if got := benchLine(c.p); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
