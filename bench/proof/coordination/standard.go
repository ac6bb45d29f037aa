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
	}
}
