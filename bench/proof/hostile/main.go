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
	"strings"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/hostile/abuse"
	"github.com/tidemarkdb/tidemark/bench/proof/hostile/honest"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

type options struct {
	binary, dir     string
	duration, calm  time.Duration
	round           time.Duration
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
	f.DurationVar(&o.calm, "calm", 30*time.Second,
		"how long honest clients are measured without abuse, before it and after each round of it")
	f.DurationVar(&o.round, "round", 5*time.Minute, "for how long abuse goes on between two calms")
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
	if o.round <= 0 {
		return o, fmt.Errorf("-round is %s: it has to be more than 0", o.round)
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

// compile compiles the regular expression of -only.
func compile(only string) (*regexp.Regexp, error) {
	r, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	return r, nil
}

// run carries out one run. Its error describes the violations.
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
		if config, err = authn.LoadClientTLS(files.client.Cert, files.client.Key,
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
	status, err := admin.New(client).Status(ctx)
	if err != nil {
		return err
	}
	load := honest.Start(context.WithoutCancel(ctx), client.Keyspace("honest"), o.clients, o.interval)
	defer load.Stop()
	m := &measuring{options: o, cluster: c, load: load, quiet: newPhase("calm"),
		abuse: newPhase("abuse")}
	m.watch(ctx, o.calm, m.quiet)
	a := attack{Target: abuse.Target{Addresses: c.addresses, HTTP: c.http, Cluster: status.Cluster,
		Keyspace: "honest"}, Seed: o.seed, Parallel: o.parallel, Longest: o.longest, Only: o.only,
		Sink: o.sink}
	if o.secure {
		a.Cert, a.Key, a.CA = files.client.Cert, files.client.Key, files.serverCA.Cert
	}
	report := m.rounds(ctx, a)
	violations := append(m.violations, report.Found)
	load.Stop()
	if err := c.check(o.memory); err == nil {
		violations = append(violations, c.restartAndVerify(context.WithoutCancel(ctx), load, config))
	}
	printReport(report, m)
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

// logOf is the path of a process's log.
func logOf(dir, name string) string { return filepath.Join(dir, name+".log") }
