package node

import (
	"math"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
)

// processLoad measures the processor time that the process uses, between the last two calls.
type processLoad struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration
	rate float64
}

// micro returns the average over the last minute, in millionths of a processor; 0 if the system
// does not provide it.
func (p *processLoad) micro() uint64 {
	used, now := processTime(), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if passed := now.Sub(p.at); !p.at.IsZero() && passed > 0 {
		weight := 1 - math.Exp(-float64(passed)/float64(loadmeter.LoadWindow))
		if p.rate == 0 {
			weight = 1
		}
		p.rate += weight * ((used-p.used).Seconds()/passed.Seconds() - p.rate)
	}
	p.at, p.used = now, used
	return uint64(max(0, p.rate) * 1e6)
}
