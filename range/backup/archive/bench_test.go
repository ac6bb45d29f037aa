package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
)

// benchRecords are records with values that compress to about half.
func benchRecords(count, size int) []Record {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]Record, count)
	for i := range all {
		value := make([]byte, size)
		for at := 0; at+8 <= len(value); at += 16 {
			binary.LittleEndian.PutUint64(value[at:], random.Uint64())
		}
		all[i] = Record{Key: fmt.Appendf(nil, "order/%012d", i), Value: value,
			Timestamp: hlc.Timestamp{Wall: at.Wall - random.Int64N(1e12)}}
	}
	return all
}

func BenchmarkPiece(b *testing.B) {
	identity := newIdentity(b)
	records := benchRecords(64<<10, 256)
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"plain", Options{}},
		{"level2", Options{Level: 2}},
		{"encrypted", Options{Recipients: Recipients{identity.Recipient()}}},
	} {
		w, err := NewWriter(testHeader(), c.o)
		must(b, err)
		for _, r := range records {
			must(b, w.Add(r))
		}
		raw := int64(w.Size())
		data, _, err := w.Finish()
		must(b, err)
		b.Run("write/"+c.name, func(b *testing.B) {
			b.SetBytes(raw)
			for b.Loop() {
				seal(b, testHeader(), c.o, records)
			}
			b.ReportMetric(float64(raw)/float64(len(data)), "ratio")
		})
		b.Run("read/"+c.name, func(b *testing.B) {
			b.SetBytes(raw)
			b.ReportAllocs()
			var r Reader
			for b.Loop() {
				err := r.Reset(data, Identities{identity})
				must(b, err)
				for err == nil {
					_, err = r.Next()
				}
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}
