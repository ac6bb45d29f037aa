package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Thousands of leases that run out at once end bit by bit, none early, and all of them, although
// some of the ends that are proposed get lost, and others take their time.
func TestManyEndBitByBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newClocked(time.Hour)
		l.Activate(true)
		deadlines, keys := map[int64]int64{}, map[int64]int{}
		for id := int64(1); id <= 400; id++ {
			term := time.Duration(rapid.IntRange(1000, 3000).Draw(t, "term")) * time.Millisecond
			l.grant(term, id)
			deadlines[id] = l.nanos + int64(term)
			keys[id] = rapid.SampledFrom([]int{0, 1, 1, 50, endKeys / 2, 2 * endKeys}).Draw(t, "keys")
			l.Changed(nil, map[int64]int{id: keys[id]})
		}
		type end struct {
			id int64
			at int64
		}
		var coming []end
		returned, ending, sum := map[int64]int64{}, 0, 0
		for began := l.nanos; len(deadlines) > 0; {
			if l.nanos-began > int64(time.Hour) {
				t.Fatalf("%d leases do not end", len(deadlines))
			}
			tick := Tick
			found := l.Due()
			if found.More {
				tick = BusyTick
			}
			for _, id := range found.Ended {
				last, before := returned[id]
				switch deadline, there := deadlines[id]; {
				case !there || l.nanos < deadline:
					t.Fatalf("lease %d ended %v before its deadline", id, time.Duration(deadline-l.nanos))
				case before && l.nanos-last < int64(endAgain):
					t.Fatalf("lease %d ended again after %v", id, time.Duration(l.nanos-last))
				case !before:
					ending++
					sum += keys[id]
				}
				returned[id] = l.nanos
				if rapid.IntRange(0, 9).Draw(t, "lost") > 0 {
					after := time.Duration(rapid.IntRange(0, 200).Draw(t, "after")) * time.Millisecond
					coming = append(coming, end{id, l.nanos + int64(after)})
				}
			}
			if ending > endsAtOnce || ending > 1 && sum > endKeys {
				t.Fatalf("%d leases with %d keys are ending", ending, sum)
			}
			l.pass(tick)
			var later []end
			for _, e := range coming {
				switch {
				case e.at > l.nanos:
					later = append(later, e)
				case deadlines[e.id] > 0:
					l.Changed([]Change{{ID: e.id}}, map[int64]int{e.id: -keys[e.id]})
					delete(deadlines, e.id)
					ending--
					sum -= keys[e.id]
				}
			}
			coming = later
		}
	})
}
