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

// CheckElections says what is wrong with an election timeout that is short beside the maximum clock
// offset; zero values are the defaults. A new leader's first timestamps lie ahead of its physical
// clock by that offset, and a read there needs a lease that lasts until the clock has come so far.
// With shorter leases such reads are refused for as long as the difference, after each election.
// Nothing is wrong with what is served, and clients repeat those reads; so it is the operator that
// has to hear of it.
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
