package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
	"github.com/tidemarkdb/tidemark/bench/proof/hostile/honest"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc"
)

type options struct {
	binary, dir     string
	duration, calm  time.Duration
	seed            uint64
	secure          bool
	parallel        int
	clients         int
	interval        time.Duration
	only            string
	memory          int64
	every, longest  time.Duration
	keepDir, listed bool
	attack, sink    bool
	share           bool
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil && o.listed {
		fmt.Println(strings.Join(abuse.Names(), "\n"))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err == nil && !o.share {
		err = runApart(o.attack)
	}
	switch {
	case err != nil:
	case o.attack:
		err = runAttackers(ctx, o.dir)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("hostile", flag.ExitOnError)
	f.StringVar(&o.binary, "tidemark", "bin/tidemark", "Tidemark's program")
	f.StringVar(&o.dir, "dir", "",
		"directory of the run (default: a new temporary one, removed after a run without violations)")
	f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long the abuse goes on")
	f.DurationVar(&o.calm, "calm", 30*time.Second, "how long honest clients are measured before")
	f.Uint64Var(&o.seed, "seed", 0, "what acts are drawn from (default: a new one, which is printed)")
	f.BoolVar(&o.secure, "tls", false, "servers and clients have certificates; else a cluster secret")
	f.IntVar(&o.parallel, "parallel", 3, "how many acts run at a time")
	f.DurationVar(&o.longest, "longest", 10*time.Second, "how long an act takes at most")
	f.IntVar(&o.clients, "clients", 8, "honest clients")
	f.DurationVar(&o.interval, "interval", 20*time.Millisecond,
		"time from one request of an honest client to the next")
	f.StringVar(&o.only, "only", "", "only acts whose names match this regular `expression`")
	f.BoolVar(&o.listed, "list", false, "list the acts, and do nothing")
	f.BoolVar(&o.sink, "sink", false,
		"abuse listeners of the attackers' own instead of the servers: what the attackers' use of the "+
			"machine alone does to honest clients")
	f.BoolVar(&o.share, "share", false,
		"attackers have the processors of servers and honest clients, instead of the last one alone")
	f.BoolVar(&o.attack, "attack", false, "be the attackers of the run in the directory")
	f.Int64Var(&o.memory, "memory", 2<<30, "bytes of memory that a server may have resident")
	f.DurationVar(&o.every, "every", 10*time.Second, "how often a line is printed")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if _, err = compile(o.only); err != nil {
		return o, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "tidemark-hostile-")
	} else {
		o.keepDir, err = true, os.MkdirAll(o.dir, 0o755)
	}
	return o, err
}

// compile compiles the expression of -only.
func compile(only string) (*regexp.Regexp, error) {
	r, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	return r, nil
}

// run is one run. Its error says what was violated.
func run(ctx context.Context, o options) error {
	files, err := makeFiles(o.dir)
	if err != nil {
		return err
	}
	c, err := newCluster(o, files)
	if err != nil {
		return err
	}
	defer c.kill()
	mode := "a cluster secret"
	if o.secure {
		mode = "TLS"
	}
	fmt.Printf("seed %d, %s, %s; servers with %s, logs in %s\n", o.seed, o.duration,
		plural(o.parallel, "act")+" at a time", mode, o.dir)
	if err := c.start(); err != nil {
		return err
	}
	var config *tls.Config
	if o.secure {
		if config, err = rpc.LoadClientTLS(files.client.Cert, files.client.Key,
			files.serverCA.Cert); err != nil {
			return err
		}
	}
	client, err := c.open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if _, err := client.CreateKeyspace(ctx, "honest", kv.Hash(16)); err != nil {
		return err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	load := honest.Start(context.WithoutCancel(ctx), client.Keyspace("honest"), o.clients, o.interval)
	defer load.Stop()
	var violations []error
	watch := func(d time.Duration, what string, total *[]honest.Measured) bool {
		end := time.Now().Add(d)
		for time.Now().Before(end) && ctx.Err() == nil {
			pause(ctx, min(o.every, time.Until(end)))
			m := load.Measure()
			*total = append(*total, m)
			fmt.Printf("%s: %5d requests, p50 %6s, p99 %6s, max %6s, %d failed; memory %s\n", what,
				m.Requests, short(m.P50), short(m.P99), short(m.Max), m.Failures, c.memory())
			if m.Failure != nil {
				fmt.Println("  ", m.Failure)
				if errors.Is(m.Failure, honest.ErrLost) {
					violations = append(violations, m.Failure)
				}
			}
			if err := c.check(o.memory); err != nil {
				violations = append(violations, err)
				return false
			}
		}
		return true
	}
	var calm, abused []honest.Measured
	watch(o.calm, "calm ", &calm)
	a := attack{Target: abuse.Target{Addresses: c.addresses, HTTP: c.http, Cluster: status.Cluster,
		Keyspace: "honest"}, Seed: o.seed, Parallel: o.parallel, Longest: o.longest,
		Duration: o.duration, Only: o.only, Sink: o.sink}
	if o.secure {
		a.Cert, a.Key, a.CA = files.client.Cert, files.client.Key, files.serverCA.Cert
	}
	attackers, err := startAttackers(o.dir, o.share, a)
	if err != nil {
		return err
	}
	defer func() { _ = attackers.Kill() }()
	watch(o.duration, "abuse", &abused)
	if ctx.Err() != nil {
		_ = attackers.Signal(os.Interrupt)
	}
	report, err := reportOf(o.dir, attackers)
	violations = append(violations, err)
	violations = append(violations, report.Found)
	load.Stop()
	if err := c.check(o.memory); err == nil {
		violations = append(violations, c.restartAndVerify(context.WithoutCancel(ctx), load, config))
	}
	printReport(report, calm, abused, c)
	if err := errors.Join(violations...); err != nil {
		return fmt.Errorf("violations (seed %d):\n%w", o.seed, err)
	}
	fmt.Println("0 violations")
	if o.keepDir {
		return nil
	}
	c.kill()
	return os.RemoveAll(o.dir)
}

// printReport says what was done, and how long honest clients waited.
func printReport(r abuse.Report, calm, abused []honest.Measured, c *cluster) {
	var names []string
	for name := range r.Acts {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Printf("acts, %d connections and %d MiB of them:\n", r.Connections, r.Bytes>>20)
	for _, name := range names {
		fmt.Printf("  %-24s %5d\n", name, r.Acts[name])
	}
	before, beside := median(calm), median(abused)
	ratio := float64(beside) / float64(max(before, 1))
	verdict := "met"
	if ratio > 2 {
		verdict = "missed"
	}
	requests, failed := 0, 0
	for _, m := range abused {
		requests += m.Requests
		failed += m.Failures
	}
	fmt.Printf("honest clients: p99 %s in calm, %s beside abuse (medians of windows): %.2f times, "+
		"goal 2: %s; %d of %d requests failed\n", short(before), short(beside), ratio, verdict, failed,
		requests)
	fmt.Printf("most memory of a server: %d MiB\n", c.most>>20)
}

// median is that of the 99th percentiles of windows.
func median(all []honest.Measured) time.Duration {
	var p99 []time.Duration
	for _, m := range all {
		if m.Requests > 0 {
			p99 = append(p99, m.P99)
		}
	}
	if len(p99) == 0 {
		return 0
	}
	slices.Sort(p99)
	return p99[len(p99)/2]
}

func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// logOf is where a server writes.
func logOf(dir, name string) string { return filepath.Join(dir, name+".log") }
