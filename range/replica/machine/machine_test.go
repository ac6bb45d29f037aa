package machine

import (
	"reflect"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// mostFields is how many fields Machine.Mu guards at most: what one state machine consists of. What
// grows beyond that wants a room of its own.
const mostFields = 15

func TestTheLockGuardsFewFields(t *testing.T) {
	mu, _ := reflect.TypeFor[Machine]().FieldByName("Mu")
	if n := mu.Type.NumField() - 1; n > mostFields { // the first is the lock
		t.Errorf("Machine.Mu guards %d fields, at most %d are meant to be", n, mostFields)
	}
}

// TestWhatIsOnItsWay: entries build on each other in order, and what loads records stops the
// others.
func TestWhatIsOnItsWay(t *testing.T) {
	var e entries
	applied := &storage.Record{CommandTerm: 3, Sequence: 7}
	if e.Base(3, applied) != 7 || e.Base(4, applied) != 0 {
		t.Error("the first entry of a term builds on what is applied of it")
	}
	e.InFlight = []*Entry{{Sequence: 8}, {Sequence: 9}}
	e.Building = &Entry{Sequence: 10}
	if e.Base(3, applied) != 9 || e.Find(10) != e.Building || e.Find(0) != nil || e.WaitsAlone() {
		t.Error("the next entry builds on the newest")
	}
	e.Building.Load, e.Building.Lowest = &LoadSpan{"b", "d"}, hlc.Timestamp{Wall: 5}
	at := hlc.Timestamp{Wall: 6}
	if !e.WaitsAlone() || e.LoadOf([]byte("c"), at) != e.Building ||
		e.LoadOf([]byte("e"), at) != nil ||
		e.LoadOf([]byte("c"), hlc.Timestamp{Wall: 4}) != nil {
		t.Error("a load is found at its keys, at and above its timestamp")
	}
	if e.RemoveFirst(); len(e.InFlight) != 1 || e.InFlight[0].Sequence != 9 {
		t.Error("the oldest entry is removed first")
	}
}

// TestMovedFrom: a partition has moved when its generation is another one, is about to be, or when
// another partition has consumed it.
func TestMovedFrom(t *testing.T) {
	var p published
	d := &clusterpb.Partition{Id: 1, Generation: 4}
	p.Publish(d, 10, 12)
	if p.MovedFrom(4) != nil || p.MovedFrom(3) != d || p.DescribedAt() != 10 ||
		p.SettledBehind() != 12 {
		t.Error("it is at generation 4")
	}
	if p.Announce(5); p.MovedFrom(4) != d {
		t.Error("a part of it goes")
	}
	by := &clusterpb.Partition{Id: 2}
	if p.Subsumed(by); p.MovedFrom(4) != by || p.SubsumedBy() != by {
		t.Error("it is a part of another one")
	}
}
