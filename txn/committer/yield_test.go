package committer

import (
	"context"
	"testing"
	"time"
)

// A transaction that was pushed once may have met an ordinary reader. One that is pushed again
// gives way to older ones from then on.
func TestWhatIsPushedAgainYields(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		s.longest, s.maxOffset, s.pushes = 2*time.Millisecond, 250*time.Millisecond, 3
		x := begin(t, ctx, c)
		reads := Reads{At: s.now(), Keys: []Key{k2("a7")}}
		if _, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, reads,
			false); err != nil {
			t.Fatal(err)
		}
		yielded := 0
		for i, q := range s.refreshed {
			if q.Yield {
				yielded++
			} else if yielded > 0 {
				t.Errorf("refresh %d of %d gives way to no transaction, those before did", i+1,
					len(s.refreshed))
			}
		}
		if len(s.refreshed) != 4 || yielded != 2 {
			t.Errorf("%d of %d refreshes give way", yielded, len(s.refreshed))
		}
	})
}
