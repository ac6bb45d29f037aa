package command

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// naiveOverlap compares each operation with each other.
func naiveOverlap(ops []*storepb.Op) bool {
	type written struct{ puts, deletes []*storepb.Op }
	var collect func(op *storepb.Op) written
	collect = func(op *storepb.Op) (w written) {
		switch o := op.Op.(type) {
		case *storepb.Op_Put:
			w.puts = append(w.puts, op)
		case *storepb.Op_DeleteRange:
			w.deletes = append(w.deletes, op)
		case *storepb.Op_Txn:
			for _, nested := range append(append([]*storepb.Op{}, o.Txn.Success...), o.Txn.Failure...) {
				n := collect(nested)
				w.puts, w.deletes = append(w.puts, n.puts...), append(w.deletes, n.deletes...)
			}
		}
		return w
	}
	for i, op := range ops {
		if txn := op.GetTxn(); txn != nil && (naiveOverlap(txn.Success) || naiveOverlap(txn.Failure)) {
			return true
		}
		one := collect(op)
		for j, other := range ops {
			if i == j {
				continue
			}
			two := collect(other)
			for _, p := range one.puts {
				for _, q := range two.puts {
					if string(p.GetPut().Key) == string(q.GetPut().Key) {
						return true
					}
				}
				for _, d := range two.deletes {
					if inRange(string(p.GetPut().Key), d.GetDeleteRange()) {
						return true
					}
				}
			}
		}
	}
	return false
}

func inRange(key string, d *storepb.DeleteRange) bool {
	start, end := string(d.Key), string(d.RangeEnd)
	return key == start && end == "" || key >= start && (end == "\x00" || key < end)
}

func TestOverlap(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
	end := rapid.SampledFrom([]string{"", "\x00", "a", "b", "c", "d", "e"})
	var op func(depth int) *rapid.Generator[*storepb.Op]
	op = func(depth int) *rapid.Generator[*storepb.Op] {
		return rapid.Custom(func(t *rapid.T) *storepb.Op {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind < 3:
				return put(key.Draw(t, "key"))
			case kind < 5 || depth == 0:
				return &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: &storepb.DeleteRange{
					Key: []byte(key.Draw(t, "key")), RangeEnd: []byte(end.Draw(t, "end"))}}}
			}
			list := rapid.SliceOfN(op(depth-1), 0, 2)
			return &storepb.Op{Op: &storepb.Op_Txn{Txn: &storepb.Txn{
				Success: list.Draw(t, "success"), Failure: list.Draw(t, "failure")}}}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOfN(op(2), 0, 4).Draw(t, "operations")
		want := naiveOverlap(ops)
		if err := checkOverlap(ops); want != errors.Is(err, ErrDuplicateKey) || !want && err != nil {
			t.Fatalf("%v, want an overlap: %v", err, want)
		}
	})
}

// Checking takes no time that the number of operations is squared in.
func TestOverlapOfManyOperations(t *testing.T) {
	var ops []*storepb.Op
	for i := range MaxOperations / 2 {
		ops = append(ops, put(fmt.Sprintf("p%06d", i)), &storepb.Op{Op: &storepb.Op_DeleteRange{
			DeleteRange: &storepb.DeleteRange{Key: fmt.Appendf(nil, "d%06d", i)}}})
	}
	start := time.Now()
	if err := checkOverlap(ops); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}
