package mvcc

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const benchRows = 100_000

func benchKey(dst []byte, i int) []byte {
	return fmt.Appendf(append(dst, 0, 0, 0, 7), "user%012d", i)
}

// benchState holds benchRows rows of 256 bytes, in memtables or in tables.
func benchState(b *testing.B, flush bool) *engine.State {
	s := openState(b)
	value := make([]byte, 256)
	for i := 0; i < benchRows; i += 1000 {
		commit(b, s, func(batch *engine.StateBatch) error {
			for j := i; j < i+1000; j++ {
				value[0] = byte(j)
				at := hlc.Timestamp{Wall: 1763632000_000000000 + int64(j)}
				id := RequestID{Client: 1, Sequence: uint64(j)}
				if err := put(batch, benchKey(nil, j), at, id, value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if flush {
		if err := s.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func both(b *testing.B, run func(b *testing.B, s *engine.State)) {
	for _, flush := range []bool{false, true} {
		name := "memtable"
		if flush {
			name = "table"
		}
		b.Run(name, func(b *testing.B) {
			s := benchState(b, flush)
			b.ReportAllocs()
			b.ResetTimer()
			run(b, s)
		})
	}
}

func BenchmarkGet(b *testing.B) {
	both(b, func(b *testing.B, s *engine.State) {
		key := make([]byte, 0, 64)
		for b.Loop() {
			key = benchKey(key[:0], rand.IntN(benchRows))
			if _, found, err := Newest(s, key); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
}

func BenchmarkGetter(b *testing.B) {
	both(b, func(b *testing.B, s *engine.State) {
		g, err := NewGetter(s)
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		key := make([]byte, 0, 64)
		for b.Loop() {
			key = benchKey(key[:0], rand.IntN(benchRows))
			if _, found, err := g.View(key, hlc.MaxTimestamp); err != nil || !found {
				b.Fatal(found, err)
			}
		}
	})
}

func benchScan(b *testing.B, s *engine.State, reverse bool) {
	key := make([]byte, 0, 64)
	for b.Loop() {
		key = benchKey(key[:0], rand.IntN(benchRows-200)+100)
		o := ScanOptions{Span: keys.Span{Start: key, End: []byte{0, 0, 0, 8}}, At: hlc.MaxTimestamp,
			MaxRows: 100, Reverse: reverse}
		if reverse {
			o.Span = keys.Span{Start: []byte{0, 0, 0, 7}, End: key}
		}
		size := 0
		result, err := Scan(s, o, func(_ []byte, v Version) error {
			size += len(v.Value)
			return nil
		})
		if err != nil || result.Rows != 100 || size != 25600 {
			b.Fatal(result, size, err)
		}
	}
}

func BenchmarkScan100(b *testing.B) {
	both(b, func(b *testing.B, s *engine.State) { benchScan(b, s, false) })
}

func BenchmarkScan100Reverse(b *testing.B) {
	both(b, func(b *testing.B, s *engine.State) { benchScan(b, s, true) })
}

func BenchmarkPut(b *testing.B) {
	s := openState(b)
	batch := s.NewBatch()
	defer batch.Close()
	key, value := benchKey(nil, 1), make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		if err := put(batch, key, hlc.Timestamp{Wall: 1, Logical: 1},
			RequestID{Client: 1, Sequence: 1}, value); err != nil {
			b.Fatal(err)
		}
	}
}
