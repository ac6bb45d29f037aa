package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
	"github.com/tidemarkdb/tidemark/bench/proof/hostile/honest"
)

// settling is the time after a round of abuse before the calm is measured.
const settling = 5 * time.Second

// phase has the measurements of honest clients, in calm or during abuse.
type phase struct {
	name string
	// p99 has the 99th percentile of each window. all has the latencies of all requests.
	p99              []time.Duration
	all              *hdrhistogram.Histogram
	requests, failed int
}

func newPhase(name string) *phase { return &phase{name: name, all: honest.NewHistogram()} }

func (p *phase) add(m honest.Measured) {
	if m.Requests > 0 {
		p.p99 = append(p.p99, m.P99)
	}
	p.all.Merge(m.Latencies)
	p.requests += m.Requests
	p.failed += m.Failures
}

// median is the median of the windows' 99th percentiles.
func (p *phase) median() time.Duration {
	if len(p.p99) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(p.p99))[len(p.p99)/2]
}

// measuring is the state of the measurements of a run. Calm and abuse alternate, so that servers
// hold about as much data in both, and the machine is in the same state.
type measuring struct {
	options
	cluster      *cluster
	load         *honest.Load
	quiet, abuse *phase
	violations   []error
}

// watch measures for the time d. It returns false if a server has ended or uses too much memory.
func (m *measuring) watch(ctx context.Context, d time.Duration, p *phase) bool {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, min(m.every, time.Until(end)))
		measured := m.load.Measure()
		p.add(measured)
		fmt.Printf("%-6s %5d requests, p50 %6s, p99 %6s, max %6s, %d failed; memory %s\n", p.name+":",
			measured.Requests, short(measured.P50), short(measured.P99), short(measured.Max),
			measured.Failures, m.cluster.memory())
		if measured.Failure != nil {
			fmt.Println("  ", measured.Failure)
			if errors.Is(measured.Failure, honest.ErrLost) {
				m.violations = append(m.violations, measured.Failure)
			}
		}
		if err := m.cluster.check(m.memory); err != nil {
			m.violations = append(m.violations, err)
			return false
		}
	}
	return true
}

// rounds runs the rounds of abuse, with a calm after each round.
func (m *measuring) rounds(ctx context.Context, a attack) abuse.Report {
	sum := abuse.Report{Acts: make(map[string]int)}
	for left := m.duration; left > 0 && ctx.Err() == nil; a.Seed += 1 << 32 {
		a.Duration = min(left, m.round)
		left -= a.Duration
		r, err := m.abused(ctx, a)
		for name, n := range r.Acts {
			sum.Acts[name] += n
		}
		sum.Connections += r.Connections
		sum.Bytes += r.Bytes
		sum.Found = errors.Join(sum.Found, r.Found)
		if err != nil {
			m.violations = append(m.violations, err)
			break
		}
		if !m.watch(ctx, settling, newPhase("after")) || !m.watch(ctx, m.calm, m.quiet) {
			break
		}
	}
	return sum
}

// abused runs one round of abuse.
func (m *measuring) abused(ctx context.Context, a attack) (abuse.Report, error) {
	attackers, err := startAttackers(m.dir, m.share, a)
	if err != nil {
		return abuse.Report{}, err
	}
	defer func() { _ = attackers.Kill() }()
	alive := m.watch(ctx, a.Duration, m.abuse)
	if !alive || ctx.Err() != nil {
		_ = attackers.Signal(os.Interrupt)
	}
	r, err := reportOf(m.dir, attackers)
	if err == nil && !alive {
		err = errEnded
	}
	return r, err
}

// errEnded says that a server has ended or uses too much memory. The violation before says which.
var errEnded = errors.New("the abuse was ended early")

// printReport prints the acts of the attackers and the latency of honest clients.
func printReport(r abuse.Report, m *measuring) {
	var names []string
	for name := range r.Acts {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Printf("acts, %d connections and %d MiB of them:\n", r.Connections, r.Bytes>>20)
	for _, name := range names {
		fmt.Printf("  %-24s %5d\n", name, r.Acts[name])
	}
	before, beside := m.quiet.median(), m.abuse.median()
	ratio := float64(beside) / float64(max(before, 1))
	verdict := "met"
	if ratio > 2 {
		verdict = "missed"
	}
	fmt.Printf("honest clients: p99 %s in calm, %s beside abuse (medians of windows): %.2f times, "+
		"goal 2: %s; %d of %d requests failed\n", short(before), short(beside), ratio, verdict,
		m.abuse.failed, m.abuse.requests)
	fmt.Printf("of all requests: ")
	for i, p := range []*phase{m.quiet, m.abuse} {
		fmt.Printf("%s%s p50 %s, p99 %s, p99.9 %s, max %s", []string{"", "; "}[i], p.name,
			short(honest.Quantile(p.all, 50)), short(honest.Quantile(p.all, 99)),
			short(honest.Quantile(p.all, 99.9)), short(honest.Quantile(p.all, 100)))
	}
	fmt.Printf("\nmost memory of a server: %d MiB\n", m.cluster.most>>20)
}
