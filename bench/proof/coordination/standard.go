package coordination

import (
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Standard is the usual traffic of the coordination service.
func Standard() []driver.Workload {
	return []driver.Workload{
		&Txns{Parallel: 4, Keys: 3, Age: 15 * time.Second, Pause: 200 * time.Millisecond},
		&Watches{Writers: 2, Watchers: 2, Keys: 4, Age: 20 * time.Second,
			Pause: 300 * time.Millisecond, Kept: 8 * time.Second},
		&Leases{Parallel: 3, Pause: 300 * time.Millisecond, Slack: time.Second},
		&Locks{Parallel: 3, Pause: 300 * time.Millisecond},
		&Elections{Candidates: 3, Observers: 1, Pause: 300 * time.Millisecond},
		&Timers{Managers: 3, Period: 2 * time.Second, Pause: 500 * time.Millisecond},
	}
}
