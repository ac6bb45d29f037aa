package sim

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof"
)

// A schedule is what its text says.
func TestScheduleIsText(t *testing.T) {
	seen := make(map[string]bool)
	for seed := range uint64(300) {
		transactions := seed%3 == 0
		s := Draw(seed, 10*time.Minute, transactions)
		if !reflect.DeepEqual(s, Draw(seed, 10*time.Minute, transactions)) {
			t.Fatalf("seed %d gives two schedules", seed)
		}
		read, err := ParseSchedule("# a comment\n\n" + s.String())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, s) {
			t.Fatalf("wrote\n%s\nread\n%s", s, read)
		}
		for _, f := range s.Faults {
			seen[kindOf(f.Effect).name] = true
		}
	}
	for _, name := range Kinds() {
		if !seen[name] {
			t.Errorf("no schedule has a %s", name)
		}
	}
}

// Servers end with intents in every seed with transactions but those about reigns, and in no other.
func TestUnfinishedIsDrawn(t *testing.T) {
	for seed := range uint64(200) {
		for _, transactions := range []bool{false, true} {
			n := 0
			for _, f := range Draw(seed, 5*time.Minute, transactions).Faults {
				if _, ok := f.Effect.(lockedCrash); ok {
					n++
				}
			}
			if want := transactions && !shapeOf(seed, true).reigns; (n > 0) != want {
				t.Errorf("seed %d, transactions %v: %d times servers end with intents", seed, transactions, n)
			}
		}
	}
}

func TestParseFaultRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"1s crash":                 "want a time",
		"soon +1s crash":           "invalid duration",
		"1s +1s flood":             "no such kind",
		"1s +1s crash colour=blue": "no parameter",
		"1s +1s crash unsynced=x":  "invalid syntax",
	} {
		if _, err := ParseFault(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestStormsAreApart(t *testing.T) {
	for seed := range uint64(50) {
		last := time.Duration(-1 << 62)
		for _, s := range Draw(seed, 10*time.Minute, seed%2 == 0).storms() {
			if s.From <= last || s.Until <= s.From {
				t.Fatalf("seed %d: storm %+v begins before %v", seed, s, last)
			}
			last = s.Until
		}
	}
}

// Every kind of workload with transactions is drawn, in both orders and with both ways to keep time; each has a known pace; and the cluster is
// the one that the seed has without them.
func TestTransactionsAreDrawn(t *testing.T) {
	seen := make(map[string]bool)
	alone, reigns := 0, 0
	for seed := range uint64(300) {
		with, without := shapeOf(seed, true), shapeOf(seed, false)
		if with.options.Nodes != without.options.Nodes || with.tick != without.tick || with.wild != without.wild ||
			with.perMinute != without.perMinute && !with.reigns {
			t.Fatalf("seed %d has two clusters: %v and %v", seed, with, without)
		}
		for _, w := range with.workloads {
			seen[w.Name()] = true
		}
		if without.alone {
			t.Errorf("seed %d has partitions of one replica without transactions", seed)
		}
		if with.alone {
			alone++
		}
		if with.reigns {
			reigns++
		}
		if without.reigns || with.reigns && with.alone {
			t.Errorf("seed %d is about reigns without transactions, or with nobody to succeed a leader", seed)
		}
	}
	if reigns < 20 {
		t.Errorf("%d of 300 seeds are about reigns", reigns)
	}
	if alone < 60 {
		t.Errorf("%d of 300 seeds have partitions of one replica", alone)
	}
	for _, w := range proof.SDKTransactions() {
		if !seen[w.Name()] {
			t.Errorf("no seed runs %s", w.Name())
		}
		if operationsPerSecond(w.Name()) == 0 {
			t.Errorf("nobody knows how much %s does in a second", w.Name())
		}
	}
}

// Of twenty faults the three that are needed together remain.
func TestShrink(t *testing.T) {
	var faults []Fault
	for i := range 20 {
		faults = append(faults, fault(time.Duration(i)*time.Second, 0, stop{"1"}))
	}
	runs := 0
	small := Shrink(faults, func(left []Fault) bool {
		runs++
		needed := 0
		for _, f := range left {
			if slices.Contains([]time.Duration{2 * time.Second, 9 * time.Second, 10 * time.Second}, f.At) {
				needed++
			}
		}
		return needed == 3
	})
	if len(small) != 3 || runs > 60 {
		t.Errorf("%d remain after %d runs: %v", len(small), runs, small)
	}
	if got := Shrink(faults, func([]Fault) bool { return true }); len(got) != 0 {
		t.Errorf("none is needed, and %d remain", len(got))
	}
}
