package driver

import (
	"context"
	"math/rand/v2"
)

// Workload is a kind of traffic with its check. A Workload value serves one run.
type Workload interface {
	// Name is the workload's name in reports. Workloads are chosen by name, too.
	Name() string
	// Setup creates the keyspaces and data that the workload needs. No fault has happened to the
	// cluster yet.
	Setup(ctx context.Context, run *Run) error
	// Clients returns the number of Drives that run at the same time. Each Drive may have a client of
	// its own, or several may share a client.
	Clients() int
	// Drive is the work of one client, with a number below Clients. It works until the context ends,
	// and reports violations to run.Violation.
	Drive(ctx context.Context, run *Run, number int, client *Client, random *rand.Rand)
	// Check makes the final check, when all faults have ended and no client writes. An error is a
	// violation.
	Check(ctx context.Context, run *Run, client *Client) error
}
