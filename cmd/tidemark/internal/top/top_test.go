package top

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

func TestLines(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	times := make([]uint32, 12)
	times[2], times[11] = 98, 2 // 200 µs, and 102.4 ms
	v := &View{At: at,
		Nodes: []admin.NodeInfo{
			{ID: 2, Address: "b:7400", SilentFor: 90 * time.Second},
			{ID: 1, Address: "a:7400", Alive: true, LogSync: 1500 * time.Microsecond,
				DiskFree: 3 << 30}},
		Histories: []admin.LoadHistory{{Node: 1,
			Points: []admin.LoadPoint{
				{Begin: at.Add(-20 * time.Second), Measured: 10 * time.Second, Reads: 50_000,
					Writes: 20, ReadTimes: times},
				{Begin: at, Measured: 10 * time.Millisecond, Reads: 1}},
			Slots: []admin.LoadSlot{{Begin: at, Measured: 10 * time.Second,
				Partitions: []uint64{7, 9}, Reads: []uint64{10, 50_000}, Writes: []uint64{0, 10},
				Bytes: []uint64{100, 1 << 20}}}},
			// The node is down: what it did before is no load now.
			{Node: 2, Slots: []admin.LoadSlot{{Begin: at.Add(-time.Minute), Measured: 10 * time.Second,
				Partitions: []uint64{8}, Reads: []uint64{90_000}, Writes: []uint64{0},
				Bytes: []uint64{0}}}}},
		Machines: map[string]admin.Examination{"a:7400": {
			Processor: admin.ProcessorReport{Used: 1.25}, Memory: admin.MemoryReport{Used: 2 << 30}}},
		Slow: []admin.SlowRequest{{Node: 1, Began: at.Add(-5 * time.Second), Took: time.Second,
			Kind: "put", Keyspace: "things", Error: "deadline_exceeded",
			Lock: admin.RequestLock{Transaction: "ab12"},
			Parts: []admin.RequestPart{{Name: "queue", Took: time.Millisecond},
				{Name: "lock", Took: 999 * time.Millisecond}}}},
		Keyspaces: map[uint64]string{7: "things", 9: strings.Repeat("long", 10)},
		Problems:  1,
	}
	text := strings.Join(v.Lines(0), "\n")
	for _, want := range []string{
		"12:00:00  1 of 2 nodes alive  5000 reads/s  2.0 writes/s  1 problem, see tidemark status",
		"1          5000       2.0     200µs/102ms               -    125    2 GiB    1.5ms     3 GiB" +
			"  a:7400",
		"2     down for 90s  b:7400",
		"longlonglonglonglonglon…         9      5000       1.0     102 KiB     1",
		"put things                    1.0s      4.0s         1  lock 999ms, for transaction ab12, " +
			"ended with deadline_exceeded",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if hot := v.Hottest(); len(hot) != 2 || hot[0].ID != 9 {
		t.Errorf("the hottest partitions are %+v", hot)
	}
	if lines := v.Lines(4); len(lines) != 4 {
		t.Errorf("%d lines on a terminal of 4", len(lines))
	}
	if empty := (&View{At: at}).Lines(0); len(empty) != 3 {
		t.Errorf("of nothing: %q", empty)
	}
}
