package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

// The text of a schedule determines the schedule.
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

// Every seed with transactions ends servers with intents, except seeds about epochs. Other seeds do
// not.
func TestUnfinishedIsDrawn(t *testing.T) {
	for seed := range uint64(200) {
		for _, transactions := range []bool{false, true} {
			n := 0
			for _, f := range Draw(seed, 5*time.Minute, transactions).Faults {
				if _, ok := f.Effect.(lockedCrash); ok {
					n++
				}
			}
			if want := transactions && !shapeOf(seed, true).epochs; (n > 0) != want {
				t.Errorf("seed %d, transactions %v: %d times servers end with intents", seed,
					transactions, n)
			}
		}
	}
}

// Neighbours merge in every seed, except seeds about epochs.
func TestMergesAreDrawn(t *testing.T) {
	for seed := range uint64(100) {
		for _, transactions := range []bool{false, true} {
			n := 0
			for _, f := range Draw(seed, 3*time.Minute, transactions).Faults {
				if _, ok := f.Effect.(merge); ok {
					n++
				}
			}
			if want := !(transactions && shapeOf(seed, true).epochs); n > 3 != want {
				t.Errorf("seed %d, transactions %v: %d times neighbours merge", seed, transactions, n)
			}
		}
	}
}

func TestParseFaultRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"1s crash":                                  "want a time",
		"soon +1s crash":                            "invalid duration",
		"1s +1s flood":                              "no such kind",
		"1s +1s crash colour=blue":                  "no parameter",
		"1s +1s crash unsynced=x":                   "invalid syntax",
		"-1s +1s crash":                             "-1s is not from 0s",
		"1s +-1s crash":                             "-1s is not from 0s",
		"1001h +1s crash":                           "1001h0m0s is not from 0s",
		"1s +1s locked-crash partition=-1":          "partition: -1 is not from 0",
		"1s +1s locked-crash spared=-1":             "spared: -1 is not from 0",
		"1s +1s locked-crash flushed=-1":            "flushed: -1 is not from 0",
		"1s +1s locked-crash delay=-1ms":            "delay: -1ms is not from 0s",
		"1s +1s locked-crash unsynced=101":          "unsynced: 101 is not from 0 to 100",
		"1s +1s voter-crash partition=-1":           "partition: -1 is not from 0",
		"1s +0s transfer partition=-1":              "partition: -1 is not from 0",
		"1s +0s transfer times=1001":                "times: 1001 is not from 0 to 1000",
		"1s +1s messages delay=-1s":                 "delay: -1s is not from 0s",
		"1s +1s slow-disk takes=-1s":                "takes: -1s is not from 0s",
		"1s +1s slow-disk takes=290y":               "unknown unit",
		"1s +1s slow-disk takes=2h":                 "takes: 2h0m0s is not from 0s to 1h0m0s",
		"1s +1s disk-error count=-2":                "count: -2 is not from -1",
		"1s +1s disk-error op=erase":                "none of [read write sync]",
		"1s +0s clock offset=-2h":                   "offset: -2h0m0s is not from -1h0m0s",
		"1s +1s clock-drift ppm=-1000001":           "ppm: -1000001 is not from -1000000",
		"1s +1s parting side=0,-1":                  "side: -1 is not from 0",
		"1s +1s isolation mode=loud":                "none of [broken silent]",
		"1s +1s crash server=-1":                    "no number of a server",
		"1s +1s crash server=leader":                "no number of a server",
		"1s +1s crash server=leader.-1":             "no number of a server",
		"1s +1s crash server=follower.0.-1":         "no number of a server",
		"1s +1s crash server=99999999999999999999":  "no number of a server",
		"1s +1s between a=leader.0 b=follower.0.-1": "no number of a server",
		"1s +1s locked-crash partition=100000000000": "partition: 100000000000 is not from 0 to " +
			"1000000",
	} {
		if _, err := ParseFault(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, text := range []string{"duration -1s", "duration 1001h", "seed -1",
		"1s +1s locked-crash flushed=-1"} {
		if _, err := ParseSchedule(text); err == nil {
			t.Errorf("the schedule %q is read", text)
		}
	}
}

// Absurd numbers are refused for each parameter of each kind of fault.
func TestParseFaultRefusesAbsurdNumbers(t *testing.T) {
	absurd := map[reflect.Type][]string{
		reflect.TypeFor[int](): {"-1000001", "1000001", "-9223372036854775808",
			"9223372036854775807"},
		reflect.TypeFor[[]int]():         {"-1", "0,1000001"},
		reflect.TypeFor[time.Duration](): {"-1h1ns", "1h1ns", "-2562047h", "2562047h"},
		reflect.TypeFor[float64]():       {"-1000001", "1000001", "NaN", "+Inf"},
		reflect.TypeFor[Target]():        {"-1", "leader.-1", "follower.-1.0", "follower.0.-1"},
	}
	for _, name := range Kinds() {
		effect := kinds[name].effect
		for i := range effect.NumField() {
			for _, text := range absurd[effect.Field(i).Type] {
				line := fmt.Sprintf("1s +1s %s %s=%s", name, effect.Field(i).Name, text)
				if f, err := ParseFault(line); err == nil {
					t.Errorf("%q is read as %v", line, f)
				}
			}
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

// Every kind of workload with transactions is drawn, over hash partitions and ranges, with read
// restart and with commit wait. Each has a known number of operations in a second. The cluster of a
// seed is the same with and without transactions.
func TestTransactionsAreDrawn(t *testing.T) {
	seen := make(map[string]bool)
	alone, epochs := 0, 0
	for seed := range uint64(300) {
		with, without := shapeOf(seed, true), shapeOf(seed, false)
		if with.options.Nodes != without.options.Nodes || with.tick != without.tick ||
			with.wild != without.wild ||
			with.perMinute != without.perMinute && !with.epochs {
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
		if with.epochs {
			epochs++
		}
		if without.epochs || with.epochs && with.alone {
			t.Errorf("seed %d is about epochs without transactions, or with no successor of a "+
				"leader", seed)
		}
	}
	if epochs < 20 {
		t.Errorf("%d of 300 seeds are about epochs", epochs)
	}
	if alone < 60 {
		t.Errorf("%d of 300 seeds have partitions of one replica", alone)
	}
	for _, w := range workloads.SDKTransactions() {
		if !seen[w.Name()] {
			t.Errorf("no seed runs %s", w.Name())
		}
		if operationsPerSecond(w.Name()) == 0 {
			t.Errorf("it is unknown how much %s does in a second", w.Name())
		}
	}
}

// Shrink keeps the three of twenty faults that are needed together.
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
			if slices.Contains([]time.Duration{2 * time.Second, 9 * time.Second, 10 * time.Second},
				f.At) {
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
