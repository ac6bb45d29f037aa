package driver

import (
	"context"
	"math/rand/v2"
)

// Workload is a kind of traffic with its check. A value serves one run.
type Workload interface {
	// Name is for reports, and to choose workloads by.
	Name() string
	// Setup makes what the workload needs, in a cluster that nothing has happened to yet.
	Setup(ctx context.Context, run *Run) error
	// Clients is how many Drives run at the same time; they may have a client each, or share some.
	Clients() int
	// Drive is one client, with a number below Clients: it works until the context ends. Violations
	// go to run.Violation.
	Drive(ctx context.Context, run *Run, number int, client *Client, random *rand.Rand)
	// Check looks at the end, when everything is healed and no client writes. An error is a
	// violation.
	Check(ctx context.Context, run *Run, client *Client) error
}
