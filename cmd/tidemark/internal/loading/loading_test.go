package loading

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a Destination of some partitions; in a synctest bubble every commit takes a virtual
// while.
type store struct {
	partitions int
	fail       func(batch []records.Record) error

	mu struct {
		sync.Mutex
		rows      map[string]string
		busy      map[uint64]bool
		now, most int
		commits   int
	}
}

func newStore(partitions int) *store {
	s := &store{partitions: partitions}
	s.mu.rows = make(map[string]string)
	s.mu.busy = make(map[uint64]bool)
	return s
}

func (s *store) Partition(_ context.Context, key []byte) (uint64, error) {
	return uint64(key[0]) % uint64(s.partitions), nil
}

func (s *store) Commit(ctx context.Context, batch []records.Record) error {
	partition, _ := s.Partition(ctx, batch[0].Key)
	s.mu.Lock()
	if s.mu.busy[partition] {
		s.mu.Unlock()
		return fmt.Errorf("two batches of partition %d are under way", partition)
	}
	s.mu.busy[partition] = true
	s.mu.now++
	s.mu.most = max(s.mu.most, s.mu.now)
	s.mu.commits++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.busy[partition] = false
		s.mu.now--
	}()
	select {
	case <-time.After(time.Duration(1+batch[0].Key[0]%7) * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.fail != nil {
		if err := s.fail(batch); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[string]bool)
	for _, record := range batch {
		if other, _ := s.Partition(ctx, record.Key); other != partition {
			return fmt.Errorf("a batch of partitions %d and %d", partition, other)
		}
		if seen[string(record.Key)] {
			return fmt.Errorf("key %q is in the batch twice", record.Key)
		}
		seen[string(record.Key)] = true
		s.mu.rows[string(record.Key)] = row(record)
	}
	return nil
}

// row is what is stored of a record.
func row(r records.Record) string { return fmt.Sprint(string(r.Value), r.Expires.Unix(), r.Forever) }

func reader(all []records.Record, end error) func() (records.Record, error) {
	return func() (records.Record, error) {
		if len(all) == 0 {
			return records.Record{}, end
		}
		record := all[0]
		all = all[1:]
		return record, nil
	}
}

// Whatever the records, the bounds and the partitions: the outcome is that of one write after
// another.
func TestLoadIsLikeWritingInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var all []records.Record
		want := make(map[string]string)
		for i := range rapid.IntRange(0, 200).Draw(rt, "records") {
			key := rapid.SliceOfN(rapid.ByteRange('a', 'd'), 1, 2).Draw(rt, "key")
			value := fmt.Appendf(nil, "%d", i)
			record := records.Record{Key: key, Value: value}
			switch rapid.IntRange(0, 2).Draw(rt, "expiry") {
			case 1:
				record.Expires = time.Unix(int64(i), 0)
			case 2:
				record.Forever = true
			}
			all = append(all, record)
			want[string(key)] = row(record)
		}
		options := Options{
			BatchRecords: rapid.IntRange(1, 20).Draw(rt, "batch records"),
			BatchBytes:   rapid.IntRange(1, 100).Draw(rt, "batch bytes"),
			InFlight:     rapid.IntRange(1, 5).Draw(rt, "in flight"),
			Gathered:     rapid.IntRange(1, 100).Draw(rt, "gathered"),
		}
		s := newStore(rapid.IntRange(1, 10).Draw(rt, "partitions"))
		synctest.Test(t, func(t *testing.T) {
			written, err := Load(t.Context(), reader(all, io.EOF), s, options)
			if err != nil || written != uint64(len(all)) {
				rt.Fatalf("written %d of %d, %v", written, len(all), err)
			}
		})
		if !maps.Equal(s.mu.rows, want) {
			rt.Fatalf("got %v, want %v", s.mu.rows, want)
		}
		if s.mu.most > options.InFlight {
			rt.Fatalf("%d batches were under way at once, the bound is %d", s.mu.most, options.InFlight)
		}
	})
}

func some(n int) (all []records.Record) {
	for i := range n {
		all = append(all, records.Record{Key: fmt.Appendf(nil, "%c%d", 'a'+i%26, i),
			Value: []byte("v")})
	}
	return all
}

func TestWhatCameBeforeABadRecordIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(8)
		bad := &records.LineError{Line: 1001, Err: errors.New("no tab")}
		written, err := Load(t.Context(), reader(some(1000), bad), s, Options{})
		if !errors.Is(err, bad) || written != 1000 || len(s.mu.rows) != 1000 {
			t.Errorf("written %d, in %d, %v", written, len(s.mu.rows), err)
		}
	})
}

func TestAFailedCommitEndsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(8)
		full := errors.New("disk full")
		s.fail = func([]records.Record) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.mu.commits > 50 {
				return full
			}
			return nil
		}
		written, err := Load(t.Context(), reader(some(100_000), io.EOF), s, Options{BatchRecords: 10})
		if !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
		if int(written) != len(s.mu.rows) || written == 0 || s.mu.commits > 100 {
			t.Errorf("said %d, in %d, commits %d", written, len(s.mu.rows), s.mu.commits)
		}
	})
}

func TestAnInterruptedLoadKnowsHowFarItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(8)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		var last uint64
		written, err := Load(ctx, reader(some(1_000_000), io.EOF), s,
			Options{BatchRecords: 10, Progress: func(n uint64) { last = n }})
		if !errors.Is(err, context.DeadlineExceeded) || written == 0 ||
			int(written) != len(s.mu.rows) || last != written {
			t.Errorf("said %d, in %d, progress %d, %v", written, len(s.mu.rows), last, err)
		}
	})
}

func TestCheckCounts(t *testing.T) {
	if n, err := Check(t.Context(), reader(some(3000), io.EOF), nil); n != 3000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	bad := &records.LineError{Line: 8, Err: errors.New("no tab")}
	if n, err := Check(t.Context(), reader(some(7), bad), nil); n != 7 || !errors.Is(err, bad) {
		t.Errorf("%d, %v", n, err)
	}
}
