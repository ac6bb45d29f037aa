package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Target with a fixed latency, and failures on demand. In a synctest bubble its time is
// virtual.
type memory struct {
	latency time.Duration
	fail    func(kind string, n int) error

	mu struct {
		sync.Mutex
		rows  map[string]int // length of the value
		calls map[string]int
	}
}

func newMemory(latency time.Duration) *memory {
	m := &memory{latency: latency}
	m.mu.rows = make(map[string]int)
	m.mu.calls = make(map[string]int)
	return m
}

func (m *memory) called(ctx context.Context, kind string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(m.latency):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.calls[kind]++
	if m.fail != nil {
		return m.fail(kind, m.mu.calls[kind])
	}
	return nil
}

func (m *memory) Get(ctx context.Context, key []byte) error {
	if err := m.called(ctx, "get"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.mu.rows[string(key)]; !ok {
		return fmt.Errorf("%q: %w", key, ErrNotFound)
	}
	return nil
}

func (m *memory) Put(ctx context.Context, key, value []byte) error {
	if err := m.called(ctx, "put"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.rows[string(key)] = len(value)
	return nil
}

func (m *memory) Scan(ctx context.Context, from []byte, limit int) (int, error) {
	if err := m.called(ctx, "scan"); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.mu.rows))
	for k := range m.mu.rows {
		if k >= string(from) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	return min(len(keys), limit), nil
}

func TestRunCountsExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newMemory(3 * time.Millisecond)
		var seen []string
		result, err := Run(t.Context(), target, Config{
			Workload: Put(), Clients: 4, Records: 100, WarmUp: 300 * time.Millisecond,
			Duration: 3 * time.Second,
			Progress: func(p Progress) {
				seen = append(seen, fmt.Sprintf("%s %.0f", p.Phase, p.Rate))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		op := result.Total
		if op.Count < 3990 || op.Count > 4004 || op.Errors != 0 {
			t.Errorf("4 clients of 3 ms for 3 s: count %d, errors %d", op.Count, op.Errors)
		}
		if op.P50 != 3000 && op.P50 != 3001 || op.Max != 3000 {
			t.Errorf("p50 %d µs, max %d µs, want 3000", op.P50, op.Max)
		}
		if len(seen) < 3 || !strings.HasPrefix(seen[0], "warm-up") ||
			!strings.HasPrefix(seen[len(seen)-1], "measure") {
			t.Errorf("progress: %q", seen)
		}
	})
}

func TestYCSBRunsOverLoadedRecords(t *testing.T) {
	for _, letter := range []string{"a", "b", "c", "d", "e", "f"} {
		t.Run(letter, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := YCSB(letter)
				if err != nil {
					t.Fatal(err)
				}
				target := newMemory(time.Millisecond)
				result, err := Run(t.Context(), target, Config{
					Workload: w, Clients: 5, Records: 700, WarmUp: 50 * time.Millisecond,
					Duration: 500 * time.Millisecond, ValueSize: 10,
				})
				if err != nil {
					t.Fatal(err)
				}
				if result.Total.Errors != 0 || result.Total.Count == 0 {
					t.Errorf("count %d, errors %d: %v", result.Total.Count, result.Total.Errors,
						result.Total.Failures)
				}
				for _, op := range result.Operations {
					if op.Kind == "scan" && op.Rows == 0 {
						t.Error("scans without rows")
					}
				}
			})
		})
	}
}

func TestErrorsAreCountedByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newMemory(time.Millisecond)
		broken := errors.New("the disk is on fire")
		target.fail = func(kind string, n int) error {
			if n%3 == 0 {
				return broken
			}
			return nil
		}
		result, err := Run(t.Context(), target, Config{
			Workload: Get(), SkipLoad: true, Clients: 2, Records: 10, WarmUp: -1,
			Duration: time.Second,
			Classify: func(err error) string {
				if errors.Is(err, broken) {
					return "fire"
				}
				return Classify(err)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !result.AllFailed() {
			t.Errorf("nothing was loaded, so every get fails; count %d", result.Total.Count)
		}
		classes := map[string]uint64{}
		for _, f := range result.Total.Failures {
			classes[f.Class] = f.Count
		}
		if classes["fire"] == 0 || classes["not found"] == 0 ||
			classes["fire"]+classes["not found"] != result.Total.Errors {
			t.Errorf("classes %v of %d errors", classes, result.Total.Errors)
		}
	})
}

func TestAStalledOperationIsInTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newMemory(time.Millisecond)
		target.fail = func(kind string, n int) error {
			if n == 900 {
				// virtual: the store stalls past the end of the window
				<-time.After(2 * time.Second)
			}
			return nil
		}
		result, err := Run(t.Context(), target, Config{Workload: Put(), Clients: 1, WarmUp: -1,
			Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if result.Total.Max < 2_000_000 {
			t.Errorf("max is %d µs: the stall is hidden", result.Total.Max)
		}
	})
}

func TestOperationsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result, err := Run(t.Context(), newMemory(time.Hour), Config{
			Workload: Put(), Clients: 3, WarmUp: -1, Duration: time.Second,
			OperationTimeout: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if !result.AllFailed() || result.Total.Failures[0].Class != "timeout" {
			t.Errorf("want timeouts only: %+v", result.Total)
		}
	})
}

func TestInterruptedRunReportsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result, err := Run(ctx, newMemory(time.Millisecond), Config{Workload: Put(), Clients: 2,
			WarmUp: -1, Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if !result.Interrupted || result.Total.Count == 0 || result.Total.Errors != 0 ||
			result.Seconds > 1.1 {
			t.Errorf("%+v", result)
		}
	})
}

func TestLoadStopsAtTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newMemory(time.Millisecond)
		target.fail = func(kind string, n int) error {
			if n == 50 {
				return errors.New("no room")
			}
			return nil
		}
		_, err := Run(t.Context(), target, Config{Workload: Get(), Records: 10_000})
		if err == nil || !strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(),
			"of 10000 records") {
			t.Errorf("error %v", err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{
		{Workload: Put(), Clients: -1},
		{Workload: Put(), ValueSize: maxValueSize + 1},
		{Workload: Put(), Duration: -1},
		{Workload: ScanOf(0)},
		{},
	} {
		if _, err := Run(t.Context(), newMemory(0), cfg); err == nil {
			t.Errorf("%+v: want an error", cfg)
		}
	}
}

// Merged records are what one record of everything would have been.
func TestMergedHistograms(t *testing.T) {
	random := newRandom(2, 0)
	r := &run{cfg: Config{Classify: Classify}}
	r.phase.Store(phaseMeasure)
	all, parts := &client{run: r}, []*client{{run: r}, {run: r}, {run: r}}
	for i := range 30_000 {
		latency := time.Duration(random.IntN(int(2 * time.Second)))
		var err error
		if i%100 == 0 {
			err = ErrNotFound
		}
		all.account(Read, phaseMeasure, latency, 1, err)
		parts[i%3].account(Read, phaseMeasure, latency, 1, err)
	}
	var merged record
	for _, p := range parts {
		merged.merge(&p.records[Read])
	}
	got, want := merged.operation("read", 2), all.records[Read].operation("read", 2)
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Errorf("merged:\n%s\nwant:\n%s", a, b)
	}
}

func sampleResult() *Result {
	r := newResult(Config{Workload: Workload{Name: "ycsb-e", Keys: Zipfian}, Clients: 64,
		Records: 1_000_000, ValueSize: 256, Seed: 1, WarmUp: 2 * time.Second}, 10*time.Second)
	c := &client{run: &run{cfg: Config{Classify: Classify}}}
	c.run.phase.Store(phaseMeasure)
	for i := range 2000 {
		c.account(Scan, phaseMeasure, time.Duration(800+i)*time.Microsecond, 50, nil)
	}
	for i := range 100 {
		c.account(Insert, phaseMeasure, time.Duration(i)*20*time.Millisecond, 0, nil)
	}
	c.account(Insert, phaseMeasure, time.Second, 0, fmt.Errorf("put %q: %w", "user1",
		context.DeadlineExceeded))
	for kind := range c.records {
		r.merged[kind].merge(&c.records[kind])
	}
	r.finish()
	return r
}

func TestReports(t *testing.T) {
	want := map[string]string{
		"table": "workload ycsb-e: 64 clients, 1,000,000 records of 256 bytes, zipfian keys, " +
			`10.0 s measured after 2.0 s warm-up, seed 1
 operation  count  ops/s      mean      p50      p95      p99      max  errors  rows/s
 insert       100     10    990 ms   980 ms   1.88 s   1.96 s   1.98 s       1       0
 scan       2,000    200   1.80 ms  1.80 ms  2.70 ms  2.78 ms  2.80 ms       0  10,000
 total      2,100    210  48.86 ms  1.85 ms  2.79 ms   1.56 s   1.98 s       1  10,000
1 × timeout, for example: put "user1": context deadline exceeded
`,
	}
	for format, text := range want {
		var out bytes.Buffer
		if err := sampleResult().Write(&out, format); err != nil {
			t.Fatal(err)
		}
		if out.String() != text {
			t.Errorf("%s:\n%s\nwant:\n%s", format, out.String(), text)
		}
	}
	var out bytes.Buffer
	if err := sampleResult().Write(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Operations) != 2 || back.Total.Count != 2100 {
		t.Errorf("json came back as %+v", back)
	}
	out.Reset()
	if err := sampleResult().Write(&out, "tsv"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		if strings.Count(line, "\t") != strings.Count(lines[0], "\t") {
			t.Errorf("tsv line %q has other columns than %q", line, lines[0])
		}
	}
	if err := sampleResult().Write(&out, "xml"); err == nil {
		t.Error("want an error for an unknown format")
	}
}

// What the generator itself costs: it must be small against the operations it measures.
func BenchmarkGenerator(b *testing.B) {
	w, _ := YCSB("a")
	cfg, err := Config{Workload: w, Records: 100_000}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	inserted := newInsertCounter(cfg.Records)
	r := &run{cfg: cfg, values: newValues(1, 256), chooser: newChooser(w.Keys, cfg.Records,
		inserted), inserted: inserted}
	r.phase.Store(phaseMeasure)
	c := &client{run: r, random: newRandom(1, 0)}
	b.ReportAllocs()
	for b.Loop() {
		op := c.draw()
		start := time.Now()
		c.account(op.kind, phaseMeasure, time.Since(start), 0, nil)
	}
}
