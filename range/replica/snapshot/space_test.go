package snapshot

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// A snapshot that found no room is not received again until there is more, or a pause is over that
// grows with each.
func TestPauseWithoutSpace(t *testing.T) {
	const reserve = 1000
	var r spacePause
	now := time.Unix(1000, 0)
	may := func(free uint64, want bool) {
		t.Helper()
		err := r.check(now, free, reserve)
		if (err == nil) != want || err != nil && !errors.Is(err, engine.ErrNoRoom) {
			t.Fatalf("at %s with %d free: %v", now.Format(time.TimeOnly), free, err)
		}
	}
	noRoom := fmt.Errorf("table: %w", engine.ErrNoRoom)

	may(0, true) // nothing is known yet
	r.ended(now, 5000, noRoom)
	may(5000, false)
	may(5499, false)
	may(5500, true)
	now = now.Add(leastPause)
	may(5000, true)

	r.ended(now, 5000, noRoom)
	now = now.Add(leastPause)
	may(5000, false)
	r.ended(now, 5600, errors.New("cut short")) // says nothing about room
	may(5600, true)
	may(5000, false)
	now = now.Add(leastPause)
	may(5000, true)

	for range 20 {
		r.ended(now, 5000, noRoom)
	}
	now = now.Add(mostPause - 1)
	may(5000, false)
	now = now.Add(1)
	may(5000, true)

	r.ended(now, 5000, noRoom)
	r.ended(now, 6000, nil)
	may(0, true)
	r.ended(now, 5000, noRoom)
	now = now.Add(leastPause)
	may(5000, true)
}
