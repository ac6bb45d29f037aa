package sorting

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A sorter of which the lowest records are taken while others are added has what a map would have,
// with much memory and with little.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(0, "")
		defer s.Close()
		if rapid.Bool().Draw(t, "little memory") {
			s.memory = 300
		}
		of := map[string]string{}
		// upTo returns what the map has below a key, in order.
		upTo := func(below string) (all []string) {
			for key, value := range of {
				if key < below {
					all = append(all, key+"="+value)
				}
			}
			slices.Sort(all)
			return all
		}
		for i := range rapid.IntRange(0, 100).Draw(t, "steps") {
			key := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 1, 5, -1).Draw(t, "key")
			var got, want []string
			take := func(r Record) bool {
				got = append(got, string(r.Key)+"="+string(r.Value))
				return true
			}
			more, err := true, error(nil)
			switch rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				want = upTo("d")
				err = s.Each(take)
			case 1:
				err = s.Truncate([]byte(key))
				for k := range of {
					if k >= key {
						delete(of, k)
					}
				}
			case 2:
				_, err = s.Compact()
			case 3, 4:
				want = upTo(key)
				more, err = s.Take([]byte(key), take)
				for k := range of {
					if k < key {
						delete(of, k)
					}
				}
			default:
				of[key] = fmt.Sprint("value ", i)
				err = s.Add(Record{Key: []byte(key), Value: []byte(of[key])})
			}
			if err != nil || !more || !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q; %v", got, want, err)
			}
		}
	})
}

// However often a little is taken, the file is copied when half of it was taken, and not before.
func TestTakeCopiesLittle(t *testing.T) {
	s := New(minMemory, t.TempDir())
	defer s.Close()
	const n = 80_000
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	value := bytes.Repeat([]byte("v"), 1000)
	for i := range n {
		if err := s.Add(Record{Key: key(i * 7919 % n), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	copies, taken, most := 0, 0, s.runs.size
	for i := 0; i <= n; i += n / 200 {
		before := s.runs.file
		more, err := s.Take(key(i), func(r Record) bool {
			if !bytes.Equal(r.Key, key(taken)) || len(r.Value) != len(value) {
				t.Fatalf("%s comes in place of %d", r.Key, taken)
			}
			taken++
			return true
		})
		if err != nil || !more || taken != i {
			t.Fatalf("%d were taken: %v", taken, err)
		}
		if s.runs.file != before {
			copies++
		}
		if s.runs.size > most || s.runs.size > 0 && 2*s.runs.live() <= s.runs.size {
			t.Fatalf("%d bytes of %d are in use", s.runs.live(), s.runs.size)
		}
	}
	if copies < 2 || copies > 12 || s.held > 0 {
		t.Errorf("the file was copied %d times, and %d bytes are held", copies, s.held)
	}
}
