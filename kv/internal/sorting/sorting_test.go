package sorting

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A sorter returns what a map would have, in order, with much memory and with little.
func TestSorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(0, "")
		defer s.Close()
		if rapid.Bool().Draw(t, "little memory") {
			s.memory = 300
		}
		of := map[string]string{}
		inOrder, last := true, ""
		for i := range rapid.IntRange(0, 100).Draw(t, "records") {
			key := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00")), 1, 12, -1).Draw(t, "key")
			value := fmt.Sprint("value ", i, " lives ", i%3)
			of[key] = value
			inOrder = inOrder && (i == 0 || key > last)
			last = key
			if err := s.Add(Record{Key: []byte(key), Value: []byte(value), Lifetime: keys.Lifetime(i % 3)}); err != nil {
				t.Fatal(err)
			}
		}
		if s.InOrder() != inOrder {
			t.Errorf("in order: %v, and it says %v", inOrder, s.InOrder())
		}
		var want, got []string
		for key, value := range of {
			want = append(want, key+"="+value)
		}
		slices.SortFunc(want, func(a, b string) int {
			return bytes.Compare([]byte(a[:bytes.IndexByte([]byte(a), '=')]),
				[]byte(b[:bytes.IndexByte([]byte(b), '=')]))
		})
		for r, err := range s.Sorted() {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(string(r.Value), fmt.Sprint(" lives ", int64(r.Lifetime))) {
				t.Errorf("%q has lifetime %d", r.Value, r.Lifetime)
			}
			got = append(got, string(r.Key)+"="+string(r.Value))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// With little memory most goes to a file, of which nothing is left.
func TestSorterSpills(t *testing.T) {
	dir := t.TempDir()
	s := New(minMemory, dir)
	random := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 1000)
	const n = 50_000
	for range n {
		if err := s.Add(Record{Key: fmt.Appendf(nil, "%08d", random.IntN(1<<20)),
			Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if s.InMemory() || s.Spilled() < 30<<20 || s.InOrder() {
		t.Fatalf("%d bytes of %d are in the file", s.Spilled(), s.Bytes())
	}
	if s.held > minMemory {
		t.Errorf("%d bytes are in memory", s.held)
	}
	count, last := 0, ""
	for r, err := range s.Sorted() {
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Key) <= last || len(r.Value) != 1000 {
			t.Fatalf("%s behind %s", r.Key, last)
		}
		last = string(r.Key)
		count++
	}
	if count < n*9/10 || count > n {
		t.Errorf("%d of %d records", count, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Parts of what is in memory are read at the same time.
func TestBetween(t *testing.T) {
	s := New(0, "")
	defer s.Close()
	for _, i := range rand.New(rand.NewPCG(1, 3)).Perm(1000) {
		if err := s.Add(Record{Key: fmt.Appendf(nil, "%04d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	s.Sort()
	counts := make(chan int, 3)
	for _, bounds := range [][2]string{{"", "0100"}, {"0100", "0700"}, {"0700", ""}} {
		go func() {
			n := 0
			for r := range s.Between([]byte(bounds[0]), []byte(bounds[1])) {
				if string(r.Key) < bounds[0] || bounds[1] != "" && string(r.Key) >= bounds[1] {
					n = -10_000
				}
				n++
			}
			counts <- n
		}()
	}
	if n := <-counts + <-counts + <-counts; n != 1000 {
		t.Fatalf("%d records", n)
	}
}

// A sample is bounded, and its keys divide the bytes evenly.
func TestSample(t *testing.T) {
	var s Sample
	random := rand.New(rand.NewPCG(1, 4))
	var total, low uint64
	for range 2_000_000 {
		key, size := random.IntN(1000), 20+random.IntN(200)
		total += uint64(size)
		if key < 250 {
			low += uint64(size)
		}
		s.Note(fmt.Appendf(nil, "%03d", key), size)
	}
	keys, each := s.Keys()
	if len(keys) > mostSamples || len(keys) < mostSamples/4 {
		t.Fatalf("%d samples", len(keys))
	}
	n := uint64(0)
	for _, key := range keys {
		if string(key) < "250" {
			n += each
		}
	}
	if n < low*8/10 || n > low*12/10 {
		t.Errorf("%d bytes are below 250, the sample says %d of %d", low, n, total)
	}
}
