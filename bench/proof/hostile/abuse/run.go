package abuse

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures Run.
type Config struct {
	Target Target
	// Seed determines the acts and their times.
	Seed uint64
	// Parallel is the number of acts at a time. Longest is the longest time of an act.
	Parallel int
	Longest  time.Duration
	// Only, if not nil, selects acts by their names.
	Only func(name string) bool
	// Begins, if not nil, is called at the beginning of each act.
	Begins func(name string, takes time.Duration)
}

// Report says what was done.
type Report struct {
	Acts               map[string]int
	Bytes, Connections int64
	// Found has the findings.
	Found error
}

// Run plays acts until ctx ends, and returns when all have ended.
func Run(ctx context.Context, c Config) Report {
	report := Report{Acts: make(map[string]int)}
	var sent, opened atomic.Int64
	var mu sync.Mutex
	var found []error
	var running sync.WaitGroup
	var acts []act
	for _, a := range all {
		if c.Only == nil || c.Only(a.name) {
			acts = append(acts, a)
		}
	}
	for i := range max(c.Parallel, 1) {
		running.Go(func() {
			random := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for n := 0; ctx.Err() == nil && len(acts) > 0; n++ {
				a := acts[random.IntN(len(acts))]
				takes := time.Duration(1 + random.Int64N(int64(max(c.Longest, 2))-1))
				if c.Begins != nil {
					c.Begins(a.name, takes)
				}
				s := &stranger{Target: &c.Target, random: rand.New(rand.NewPCG(random.Uint64(), c.Seed)),
					from:  net.IPv4(127, 0, byte(1+i), byte(2+random.IntN(200))),
					bytes: &sent, connections: &opened}
				acting, cancel := context.WithTimeout(ctx, takes)
				err := a.play(acting, s)
				cancel()
				mu.Lock()
				report.Acts[a.name]++
				if finding := new(finding); errors.As(err, &finding) {
					found = append(found, fmt.Errorf("%s: %w", a.name, err))
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	report.Bytes, report.Connections, report.Found = sent.Load(), opened.Load(), errors.Join(found...)
	return report
}

// finding is something that a stranger was able to do and must not be able to do.
type finding struct{ what string }

// Error implements error.
func (f *finding) Error() string { return f.what }

// Names returns the names of all acts.
func Names() (names []string) {
	for _, a := range all {
		names = append(names, a.name)
	}
	return names
}
