package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// system is one store, running in separate processes. It serves one or several subjects.
type system interface {
	subjects() []subject
	servers() []*process.Process
	// prepare is called before each measurement, to adapt to changes since the last one.
	prepare(ctx context.Context) error
	// close kills the processes.
	close() error
}

// profiler is a system that can take processor profiles.
type profiler interface {
	profile(ctx context.Context, dir string, d time.Duration) error
}

// subject is what a row of the report describes.
type subject struct {
	name   string
	driver driver
	// only is the name of the only load under which the subject is measured. It is empty for all
	// loads.
	only string
	// plain is the name without the variant. It is empty for a store without variants.
	plain   string
	variant variant
}

// load is one case of the comparison.
type load struct {
	// Name is the name in the report.
	Name     string
	Workload bench.Workload
	Clients  int
	// ValueSize is the size of the values that the load writes. 0 means the size of the records.
	ValueSize int
}

// loads are measured in this order. Loads that only read come first, because puts add versions that
// later reads have to pass.
var loads = []load{
	{Name: getMany, Workload: bench.Get(), Clients: 64},
	{Name: getOne, Workload: bench.Get(), Clients: 1},
	{Name: getMost, Workload: bench.Get(), Clients: 256},
	{Name: scanMany, Workload: bench.ScanOf(100), Clients: 64},
	{Name: putOne, Workload: bench.Put(), Clients: 1},
	{Name: put64, Workload: bench.Put(), Clients: 64},
	{Name: putLarge, Workload: bench.Put(), Clients: 64, ValueSize: 1000},
	{Name: putMany, Workload: bench.Put(), Clients: 256},
}

const (
	getMany  = "get, 64 clients"
	getOne   = "get, 1 client"
	getMost  = "get, 256 clients"
	scanMany = "scan of 100 rows, 64 clients"
	putOne   = "put, 1 client"
	put64    = "put, 64 clients"
	putLarge = "put of 1 kB, 64 clients"
	putMany  = "put, 256 clients"
)

// measurement is one turn of a subject under a load.
type measurement struct {
	Subject string `json:"subject"`
	Load    string `json:"load"`
	// Turn numbers the turns of the subject under the load, over all repetitions.
	Turn   int           `json:"turn"`
	Result *bench.Result `json:"result"`
	// ServerCPU and ClientCPU are processor seconds per 1,000 operations: of all server processes of
	// the store, and of the process that runs the clients.
	ServerCPU float64 `json:"server_cpu_seconds_per_1000"`
	ClientCPU float64 `json:"client_cpu_seconds_per_1000"`
	// ServerMemory is the resident memory of all servers at the end, in bytes.
	ServerMemory int64 `json:"server_memory_bytes"`
	// plain and variant are the fields of the subject.
	plain   string
	variant variant
}

// size is the amount of measurement.
type size struct {
	Repetitions int
	// Rounds is the number of turns of each subject within a case of a repetition.
	Rounds    int
	Records   uint64
	ValueSize int
	WarmUp    time.Duration
	Duration  time.Duration
	// Limit is the time for which each limit of the machine is measured.
	Limit time.Duration
}

// measure runs one load against one subject.
func measure(
	ctx context.Context, sys system, s subject, l load, z size, turn int,
) (*measurement, error) {
	if err := sys.prepare(ctx); err != nil {
		return nil, err
	}
	if err := settle(ctx, sys.servers()); err != nil {
		return nil, err
	}
	var server, client [2]float64
	var failed error
	look := func(w window) {
		usage, err := usageOf(sys.servers())
		own, ownErr := process.ReadUsage(w.Client)
		failed = errors.Join(failed, err, ownErr)
		server[w.End], client[w.End] = usage.CPUSeconds(), own.CPUSeconds()
	}
	result, err := s.driver.run(ctx, l.config(z, turn), look, "")
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.name, l.Name, err)
	}
	if result.Interrupted {
		return nil, context.Cause(ctx)
	}
	if failed != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.name, l.Name, failed)
	}
	usage, err := usageOf(sys.servers())
	if err != nil {
		return nil, err
	}
	count := int64(result.Total.Count)
	return &measurement{
		Subject:      s.name,
		Load:         l.Name,
		Turn:         turn,
		Result:       result,
		ServerCPU:    perThousand(server[1]-server[0], count),
		ClientCPU:    perThousand(client[1]-client[0], count),
		ServerMemory: usage.ResidentBytes,
		plain:        s.plain,
		variant:      s.variant,
	}, nil
}

// config returns the load in the form for package bench.
func (l load) config(z size, turn int) bench.Config {
	c := bench.Config{
		Workload:  l.Workload,
		Clients:   l.Clients,
		Records:   z.Records,
		ValueSize: z.ValueSize,
		WarmUp:    z.WarmUp,
		Duration:  z.Duration,
		Seed:      uint64(turn) + 1,
		SkipLoad:  true,
	}
	if l.ValueSize > 0 {
		c.ValueSize = l.ValueSize
	}
	return c
}

// profileRun runs a load once more with profilers on, and writes a profile of each server, and of
// the client, to a directory below dir. This is a separate run because profiling costs time.
func profileRun(ctx context.Context, dir string, sys system, s subject, l load, z size) error {
	servers, ok := sys.(profiler)
	if !ok {
		return nil
	}
	dir = filepath.Join(dir, fileName(l.Name+" "+s.name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return servers.profile(ctx, dir, z.Duration) })
	group.Go(func() error {
		c := l.config(z, 0)
		c.WarmUp = -1
		_, err := s.driver.run(ctx, c, func(window) {}, filepath.Join(dir, "client.pprof"))
		return err
	})
	return group.Wait()
}

// fileName returns a file name without blanks and commas.
func fileName(words string) string {
	return strings.ToLower(strings.Join(
		strings.FieldsFunc(words, func(r rune) bool { return r == ' ' || r == ',' }), "-"))
}

// settle waits until the servers together use less than a tenth of a core, or until 20 s have
// passed. In the latter case their background work is measured as well.
func settle(ctx context.Context, servers []*process.Process) error {
	const (
		interval = 300 * time.Millisecond
		rest     = 0.1
		attempts = 66
	)
	before, err := usageOf(servers)
	if err != nil {
		return err
	}
	for range attempts {
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		after, err := usageOf(servers)
		if err != nil {
			return err
		}
		if after.CPUSeconds()-before.CPUSeconds() < rest*interval.Seconds() {
			return nil
		}
		before = after
	}
	return nil
}

// usageOf adds up the usage of the processes. It returns an error if one has ended.
func usageOf(servers []*process.Process) (process.Usage, error) {
	var sum process.Usage
	for _, server := range servers {
		if !server.Running() {
			return sum, fmt.Errorf("%s ended in the middle of the comparison (%v); its log "+
				"ends:\n%s", server.Name(), server.Exit(), server.LogTail(2000))
		}
		usage, err := server.Usage()
		if err != nil {
			return sum, err
		}
		sum.UserSeconds += usage.UserSeconds
		sum.SystemSeconds += usage.SystemSeconds
		sum.ResidentBytes += usage.ResidentBytes
	}
	return sum, nil
}

// killAll ends all processes at once. Their data is deleted afterwards, so they need not be closed.
func killAll(processes []*process.Process) error {
	var failures []error
	for _, p := range processes {
		if err := p.Kill(); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
