package embedded

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/range/host"
)

const (
	defaultMaxOffset     = 250 * time.Millisecond
	defaultTick          = 100 * time.Millisecond
	defaultElectionTicks = 10
)

// CheckElections returns an error if an election timeout is too short compared to the maximum clock
// offset. Zero values are the defaults. The first timestamps of a new leader are ahead of its
// physical clock by that offset. A read at such a timestamp needs a lease that lasts until the
// clock has reached the timestamp. With shorter leases such reads are refused for the difference,
// after each election. The results that are served are correct, and clients repeat the refused
// reads. So only the operator would not notice, and is told.
func CheckElections(tick time.Duration, electionTicks int, maxOffset time.Duration) error {
	if tick <= 0 {
		tick = defaultTick
	}
	if electionTicks <= 0 {
		electionTicks = defaultElectionTicks
	}
	if maxOffset <= 0 {
		maxOffset = defaultMaxOffset
	}
	if int64(electionTicks) > math.MaxInt64/int64(tick) {
		return fmt.Errorf("an election timeout of %d ticks of %s is longer than can be counted",
			electionTicks, tick)
	}
	lease := host.LeaseDuration(tick, electionTicks)
	if lease >= maxOffset {
		return nil
	}
	return fmt.Errorf("an election timeout of %d ticks of %s gives leases of %s, shorter than "+
		"the maximum clock offset of %s: for a while after each election reads would be refused; "+
		"it takes at least %d ticks, or clocks that are known to be closer together",
		electionTicks, tick, lease, maxOffset, host.ElectionTicksFor(tick, maxOffset))
}
