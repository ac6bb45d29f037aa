package history

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

func TestRecorderOrdersWhatAStandingClockCannot(t *testing.T) {
	var operations []Operation
	synctest.Test(t, func(*testing.T) {
		r := NewRecorder()
		r.Begin(Operation{Key: "k", Kind: Put, New: a}).Put()
		r.Begin(Operation{Key: "k", Kind: Put, New: b}).Put()
		r.Begin(Operation{Key: "k", Kind: Get}).Got(a)
		operations = r.Operations()
	})
	if err := Check(operations, patience).Err(); err == nil {
		t.Error("a stale read at the same instant was not noticed")
	}
}

func TestRecorderKeepsAnswers(t *testing.T) {
	r := NewRecorder()
	r.Begin(Operation{Key: "k", Kind: Get, Found: b, Outcome: Refused, Return: 9}).Got(Absent)
	r.Begin(Operation{Key: "k", Kind: CompareAndSwap, Expected: Absent, New: a}).Swapped()
	r.Begin(Operation{Key: "k", Kind: CompareAndSwap, Expected: b, New: c}).NotSwapped(a)
	r.Begin(Operation{Key: "k", Kind: Put, New: b}).Unknown()
	r.Begin(Operation{Key: "k", Kind: Put, New: c}).Refused()
	r.Begin(Operation{Key: "k", Kind: Delete}).Deleted(true)
	r.Begin(Operation{Key: "k", Kind: Get})
	operations := r.Operations()
	if r.Len() != 7 || len(operations) != 7 {
		t.Fatalf("%d operations, want 7", r.Len())
	}
	want := []string{
		"get k: nothing",
		`compare-and-swap k from nothing to "a": swapped`,
		`compare-and-swap k from "b" to "c": not swapped, found "a"`,
		`put k = "b": outcome unknown`,
		`put k = "c": outcome refused`,
		"delete k: existed true",
		"get k: outcome unknown",
	}
	for i, o := range operations {
		if got := o.describe(); got != want[i] {
			t.Errorf("operation %d: %s, want %s", i, got, want[i])
		}
		if i > 0 && o.Call <= operations[i-1].Return && operations[i-1].Return != 0 {
			t.Errorf("operation %d was called at %d, before %d ended at %d", i, o.Call, i-1,
				operations[i-1].Return)
		}
	}
	if err := Check(operations, patience).Err(); err != nil {
		t.Error(err)
	}
}

// TestRealRegisterUnderLoad lets many clients use a correct register, and checks a history of
// realistic size.
func TestRealRegisterUnderLoad(t *testing.T) {
	var mu sync.Mutex
	states := map[string]State{}
	r := NewRecorder()
	var group sync.WaitGroup
	for client := range 8 {
		group.Go(func() {
			for i := range 300 {
				key := fmt.Sprint("k", (client+i)%5)
				value := Value(fmt.Sprintf("%d.%d", client, i))
				switch i % 4 {
				case 0:
					p := r.Begin(Operation{Client: client, Key: key, Kind: Put, New: value})
					mu.Lock()
					if i%16 != 0 {
						states[key] = value
					}
					mu.Unlock()
					if i%8 == 0 {
						p.Unknown() // every second of these operations took effect
					} else {
						p.Put()
					}
				case 1, 2:
					p := r.Begin(Operation{Client: client, Key: key, Kind: Get})
					mu.Lock()
					found := states[key]
					mu.Unlock()
					p.Got(found)
				case 3:
					mu.Lock()
					expected := states[key]
					mu.Unlock()
					p := r.Begin(Operation{Client: client, Key: key, Kind: CompareAndSwap,
						Expected: expected, New: value})
					mu.Lock()
					found := states[key]
					if found == expected {
						states[key] = value
					}
					mu.Unlock()
					if found == expected {
						p.Swapped()
					} else {
						p.NotSwapped(found)
					}
				}
			}
		})
	}
	group.Wait()
	report := Check(r.Operations(), patience)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Operations != 2400 || report.Keys != 5 {
		t.Errorf("report %v", report)
	}
}

func TestMonotonic(t *testing.T) {
	var m Monotonic
	if err := m.Read(m.Known(), 0); err != nil {
		t.Errorf("nothing was written: %v", err)
	}
	m.BeginWrite(1)
	floor := m.Known()
	if err := m.Read(floor, 1); err != nil {
		t.Errorf("a read beside the write: %v", err)
	}
	if err := m.Read(floor, 0); err != nil {
		t.Errorf("a read that began before: %v", err)
	}
	if err := m.Read(m.Known(), 0); err == nil {
		t.Error("a read went back behind another read, and was not noticed")
	}
	m.BeginWrite(2)
	m.Wrote(2)
	if err := m.Read(m.Known(), 1); err == nil {
		t.Error("a stale read was not noticed")
	}
	if err := m.Read(m.Known(), 3); err == nil {
		t.Error("a value that was never written was not noticed")
	}
}

func TestCounter(t *testing.T) {
	var c Counter
	c.Added()
	c.Added()
	c.Unknown()
	for n, good := range map[uint64]bool{1: false, 2: true, 3: true, 4: false} {
		if err := c.Check(n); (err == nil) != good {
			t.Errorf("%d: %v", n, err)
		}
	}
}
