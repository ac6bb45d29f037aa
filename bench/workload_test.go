package bench

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMixesAreTheStandardOnes(t *testing.T) {
	want := map[string]map[Kind]float64{
		"a": {Read: 0.5, Update: 0.5},
		"b": {Read: 0.95, Update: 0.05},
		"c": {Read: 1},
		"d": {Read: 0.95, Insert: 0.05},
		"e": {Scan: 0.95, Insert: 0.05},
		"f": {Read: 0.5, ReadModifyWrite: 0.5},
	}
	for letter, shares := range want {
		w, err := YCSB(letter)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.validate(); err != nil {
			t.Fatal(err)
		}
		random := newRandom(3, 1)
		counts := make(map[Kind]int)
		const draws = 200_000
		for range draws {
			counts[w.draw(random)]++
		}
		for kind := range kinds {
			if got := float64(counts[kind]) / draws; math.Abs(got-shares[kind]) > 0.005 {
				t.Errorf("workload %s: share of %s is %.3f, want %.3f", letter, kind, got,
					shares[kind])
			}
		}
	}
	if _, err := YCSB("g"); err == nil {
		t.Error("workload g: want an error")
	}
}

func TestDistributions(t *testing.T) {
	const records, draws = 10_000, 200_000
	share := func(c chooser) (hottest float64, counts []int) {
		random := newRandom(5, 0)
		counts = make([]int, records)
		for range draws {
			counts[c.choose(random)]++
		}
		return float64(slices.Max(counts)) / draws, counts
	}
	inserted := newInsertCounter(records)
	if hottest, _ := share(newChooser(Uniform, records, inserted)); hottest > 0.001 {
		t.Errorf("uniform: the hottest record has share %.4f", hottest)
	}
	hottest, counts := share(newChooser(Zipfian, records, inserted))
	if want := 1 / zeta(records, zipfTheta); hottest < want*0.9 {
		t.Errorf("zipfian: the hottest record has share %.4f, want about %.4f", hottest, want)
	}
	// Scrambled: no half of the key range is much colder than the other.
	low := 0
	for _, c := range counts[:records/2] {
		low += c
	}
	if s := float64(low) / draws; s < 0.2 || s > 0.8 {
		t.Errorf("zipfian: the lower half of the records has share %.2f", s)
	}
	hottest, counts = share(newChooser(Latest, records, inserted))
	if counts[records-1] != slices.Max(counts) {
		t.Errorf("latest: the newest record is not the hottest (share %.4f)", hottest)
	}
}

func TestDistributionNames(t *testing.T) {
	for _, d := range []Distribution{Uniform, Zipfian, Latest} {
		if got, err := ParseDistribution(d.String()); err != nil || got != d {
			t.Errorf("ParseDistribution(%q) = %v, %v", d, got, err)
		}
	}
	if _, err := ParseDistribution("normal"); err == nil {
		t.Error("want an error for an unknown distribution")
	}
}

// mix is one to one: its inverse brings the number back.
func TestKeysDoNotCollide(t *testing.T) {
	unshift := func(x uint64, by uint) uint64 {
		y := x
		for range 64 / by {
			y = x ^ y>>by
		}
		return y
	}
	inverse := func(m uint64) uint64 { // of an odd number, modulo 2^64, by Newton
		y := m
		for range 6 {
			y *= 2 - m*y
		}
		return y
	}
	unmix := func(x uint64) uint64 {
		x = unshift(x, 31) * inverse(0x94d049bb133111eb)
		x = unshift(x, 27) * inverse(0xbf58476d1ce4e5b9)
		return unshift(x, 30) - 0x9e3779b97f4a7c15
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		if back := unmix(mix(n)); back != n {
			t.Fatalf("mix(%d) came back as %d", n, back)
		}
	})
	if got, want := string(appendKey(nil, "user", 0)), "usere220a8397b1dcdaf"; got != want {
		t.Errorf("key of record 0 is %q, want %q", got, want)
	}
}

func TestValuesAreRepeatable(t *testing.T) {
	a, b := newValues(9, 300), newValues(9, 300)
	ra, rb := newRandom(9, 4), newRandom(9, 4)
	for range 100 {
		x, y := a.draw(ra), b.draw(rb)
		if len(x) != 300 || !bytes.Equal(x, y) {
			t.Fatal("the same seed gave different values")
		}
	}
	if len(newValues(1, 0).draw(ra)) != 0 {
		t.Error("want empty values of size 0")
	}
}

// The counter beside a naive one: acknowledged is the length of the gapless run of answered
// numbers.
func TestInsertCounter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const start = 10
		c := newInsertCounter(start)
		var open []uint64
		answered := make(map[uint64]bool)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "take") {
				open = append(open, c.take())
				continue
			}
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			c.answered(open[i])
			answered[open[i]] = true
			open = slices.Delete(open, i, i+1)
			want := uint64(start)
			for answered[want] {
				want++
			}
			if got := c.acknowledged(); got != want {
				t.Fatalf("acknowledged %d, want %d", got, want)
			}
		}
		if len(c.mu.done) > len(answered) {
			t.Fatal("the counter remembers more than was answered")
		}
	})
}
