package host

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
)

func TestEntryTimes(t *testing.T) {
	var times entryTimes
	if got := times.of(0); got != (group.Times{}) {
		t.Fatalf("entry 0, which nothing wrote, has %v", got)
	}
	began := time.Now()
	at := func(n int) time.Time { return began.Add(time.Duration(n)) }
	for i := range keptTimes + 2 {
		times.note(appendTimes{first: uint64(10 * i), last: uint64(10*i + 9), writing: at(i),
			synced: at(i + 1)})
	}
	if got := times.of(15); got != (group.Times{}) {
		t.Errorf("entry 15 is forgotten, and has %v", got)
	}
	want := group.Times{Writing: at(5), Synced: at(6)}
	if got := times.of(59); got != want {
		t.Errorf("entry 59 has %v, want %v", got, want)
	}
	// Another leader has replaced the tail.
	times.note(appendTimes{first: 59, last: 59, writing: at(100), synced: at(101)})
	if got := times.of(59); got.Writing != at(100) {
		t.Errorf("entry 59 has the times of the entry that it replaced: %v", got)
	}
}
