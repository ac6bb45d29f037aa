package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
)

// options are the options of the command line.
type options struct {
	size   size
	binary string
	// beside is the second binary to measure, or empty.
	beside string
	tls    bool
	dir    string
	json   string
	// out is the page to which the report is added, or empty.
	out   string
	only  string
	loads *regexp.Regexp
	// keyspaces matches the names of Tidemark's subjects that are measured.
	keyspaces *regexp.Regexp
	check     bool
	// profiles is the directory for profiles, or empty.
	profiles string
}

func main() {
	var o options
	var quick bool
	var echo, loads, keyspaces string
	flag.BoolVar(&quick, "quick", false, "one short repetition: a look, not a result")
	flag.IntVar(&o.size.Repetitions, "repetitions", 0,
		"how often everything is measured (default 3; 1 with -quick)")
	flag.IntVar(&o.size.Rounds, "rounds", 1,
		"how many turns each subject has within a case; many short ones compare best on a machine "+
			"that is not quiet")
	flag.Uint64Var(&o.size.Records, "records", 0,
		"how many records the reads choose from (default 100,000)")
	flag.IntVar(&o.size.ValueSize, "value-size", 256, "bytes of a value")
	flag.DurationVar(&o.size.Duration, "duration", 0,
		"how long each measurement is (default 10s; 3s with -quick)")
	flag.DurationVar(&o.size.WarmUp, "warm-up", 0,
		"how long each load runs before it is measured (default 3s; 1s with -quick)")
	flag.StringVar(&o.binary, "tidemark", "bin/tidemark", "Tidemark's program")
	flag.StringVar(&o.beside, "beside", "",
		"also measure this older `program` of Tidemark in turns, and give the ratios new to old")
	flag.BoolVar(&o.tls, "tls", false,
		"also measure Tidemark with mutual TLS in turns, and give the ratios TLS to plain")
	flag.StringVar(&keyspaces, "keyspaces", "",
		"measure only the keyspaces whose name matches this regular `expression` (\" 8 partitions\")")
	flag.StringVar(&o.dir, "dir", "", "where the stores keep their data, on the disk to be "+
		"measured (default: the system's temporary directory)")
	flag.StringVar(&o.json, "json", "", "also write everything as JSON to this `file`")
	flag.StringVar(&o.out, "out", "",
		"also add the report, with the date as heading, to this `page` (docs/results/etcd.md)")
	flag.StringVar(&o.only, "only", "", "measure only the `store` etcd or tidemark")
	flag.StringVar(&loads, "loads", "", "measure only the cases whose name matches this regular "+
		"`expression` (put, or \"get|scan\", or \"put, 256\")")
	flag.StringVar(&o.profiles, "profiles", "", "in the last repetition, run each case of "+
		"Tidemark once more and leave processor profiles in this `directory`")
	flag.BoolVar(&o.check, "check", false, "end with exit code 3 if a goal is missed")
	flag.StringVar(&echo, "serve-echo", "", "serve the echo that is measured as a limit at this "+
		"`address` (the program starts itself so)")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(2, fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	if echo != "" {
		fail(1, serveEcho(echo))
	}
	var err error
	if o.loads, err = regexp.Compile(loads); err != nil {
		fail(2, fmt.Errorf("-loads: %w", err))
	}
	if o.keyspaces, err = regexp.Compile(keyspaces); err != nil {
		fail(2, fmt.Errorf("-keyspaces: %w", err))
	}
	o.size = o.size.withDefaults(quick)
	// A second signal ends the program at once, and its child processes with it (process.Start).
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	r, err := compare(ctx, o)
	if err != nil {
		fail(1, err)
	}
	text := r.markdown()
	if _, err := os.Stdout.WriteString(text); err != nil {
		fail(1, err)
	}
	if o.out != "" {
		if err := bench.AppendReport(o.out, r.heading(), text); err != nil {
			fail(1, err)
		}
	}
	if o.json != "" {
		if err := writeJSON(o.json, r); err != nil {
			fail(1, err)
		}
	}
	for _, goal := range r.Goals {
		if o.check && !goal.Met {
			fail(3, fmt.Errorf("%s: %s at %d partitions is %.2f times etcd's", goal.Load,
				goal.Figure, goal.Partitions, goal.Ratio))
		}
	}
	for _, p := range r.Pairs {
		if o.check && p.Verdict == pairMissed {
			fail(3, fmt.Errorf("%s: %s: %s of %s is %.2f times that of %s",
				p.What, p.Load, p.Figure, p.Other, p.Ratio.Median, p.Base))
		}
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "compare:", err)
	os.Exit(code)
}

func (z size) withDefaults(quick bool) size {
	full := size{Repetitions: 3, Records: 100_000, Duration: 10 * time.Second,
		WarmUp: 3 * time.Second, Limit: 2 * time.Second}
	if quick {
		full = size{Repetitions: 1, Records: 100_000, Duration: 3 * time.Second,
			WarmUp: time.Second, Limit: time.Second}
	}
	full.ValueSize, full.Rounds = z.ValueSize, max(z.Rounds, 1)
	if z.Repetitions > 0 {
		full.Repetitions = z.Repetitions
	}
	if z.Records > 0 {
		full.Records = z.Records
	}
	if z.Duration > 0 {
		full.Duration = z.Duration
	}
	if z.WarmUp > 0 {
		full.WarmUp = z.WarmUp
	}
	return full
}

// compare does all repetitions. Everything that it started has ended when it returns.
func compare(ctx context.Context, o options) (_ *report, err error) {
	dir, err := os.MkdirTemp(o.dir, "tidemark-compare-")
	if err != nil {
		return nil, fmt.Errorf("directory for the stores' data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &report{Time: time.Now().UTC(), Machine: describeMachine(dir), Size: o.size}
	if strings.HasPrefix(r.Machine.Filesystem, "tmpfs") {
		progress("warning: %s is in memory, where a sync costs nothing: name a directory on a "+
			"disk with -dir", dir)
	}
	starters, versions, err := choose(o)
	if err != nil {
		return nil, err
	}
	r.Versions = versions
	var limits [][]limit
	for repetition := range o.size.Repetitions {
		progress("repetition %d of %d: limits of the machine", repetition+1, o.size.Repetitions)
		below := filepath.Join(dir, fmt.Sprint(repetition))
		if err := os.Mkdir(below, 0o755); err != nil {
			return nil, err
		}
		found, err := measureLimits(ctx, below, o.size.Limit, o.size.ValueSize)
		if err != nil {
			return nil, err
		}
		limits = append(limits, found)
		measurements, err := repeat(ctx, o, below, starters, repetition)
		if err != nil {
			return nil, err
		}
		r.Each = append(r.Each, measurements...)
		if err := os.RemoveAll(below); err != nil {
			return nil, err
		}
	}
	r.Limits = summariseLimits(limits)
	r.Results = summarise(r.Each)
	r.Goals = judge(r.Results)
	r.Pairs = pairs(r.Each)
	return r, nil
}

// starter starts a store below a directory.
type starter func(ctx context.Context, dir string) (system, error)

// choose finds the programs before any of them is started.
func choose(o options) (starters []starter, versions []string, err error) {
	if o.only == "" || o.only == "etcd" {
		version, err := etcdVersion()
		if err != nil {
			return nil, nil, err
		}
		versions = append(versions, fmt.Sprintf("%s, %d members, %d connections to the leader",
			version, etcdMembers, etcdConnections))
		starters = append(starters, func(ctx context.Context, dir string) (system, error) {
			return startETCD(ctx, filepath.Join(dir, "etcd"))
		})
	}
	if o.only == "" || o.only == "tidemark" {
		add := func(binary string, variants ...variant) error {
			version, err := tidemarkVersion(binary)
			if err != nil {
				return err
			}
			versions = append(versions, fmt.Sprintf("%s, 1 core server, %d data nodes, "+
				"replication %d", version, tidemarkNodes, tidemarkReplicas))
			for i, v := range variants {
				if v.tls && !o.tls {
					continue
				}
				name := fmt.Sprintf("tidemark-%t-%d", v.old, i)
				starters = append(starters, func(ctx context.Context, dir string) (system, error) {
					return startTidemark(ctx, binary, filepath.Join(dir, name), v, o.keyspaces)
				})
			}
			return nil
		}
		if err := add(o.binary, variant{}, variant{tls: true}); err != nil {
			return nil, nil, err
		}
		if o.beside != "" {
			if err := add(o.beside, variant{old: true}, variant{old: true, tls: true}); err != nil {
				return nil, nil, err
			}
		}
	}
	if len(starters) == 0 {
		return nil, nil, fmt.Errorf("-only %q: it is etcd or tidemark", o.only)
	}
	return starters, versions, nil
}

// repeat does one repetition: start all stores, load them, measure them in turns, kill them.
func repeat(
	ctx context.Context, o options, dir string, starters []starter, repetition int,
) (_ []*measurement, err error) {
	type turn struct {
		system  system
		subject subject
	}
	var turns []turn
	for _, start := range starters {
		started, err := start(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, started.close()) }()
		for _, s := range started.subjects() {
			turns = append(turns, turn{started, s})
			progress("%s: load %d records", s.name, o.size.Records)
			if err := s.driver.load(ctx, o.size); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	// Subjects that differ only in their variant come next to each other, alternately forwards and
	// backwards.
	slices.SortStableFunc(turns, func(a, b turn) int {
		return cmp.Compare(a.subject.plain, b.subject.plain)
	})
	if repetition%2 == 1 {
		slices.Reverse(turns)
	}
	var measurements []*measurement
	for i, l := range loads {
		if !o.loads.MatchString(l.Name) {
			continue
		}
		for round := range o.size.Rounds {
			for j := range turns {
				t := turns[(i+j+repetition+round)%len(turns)]
				if t.subject.only != "" && t.subject.only != l.Name {
					continue
				}
				m, err := measure(ctx, t.system, t.subject, l, o.size, repetition*o.size.Rounds+round)
				if err != nil {
					return nil, err
				}
				progress("%-30s %-34s %9.0f/s  p50 %s  p99 %s  server CPU %.4f s/1,000  errors %d",
					l.Name, t.subject.name, m.Result.Total.Throughput,
					latency(float64(m.Result.Total.P50)), latency(float64(m.Result.Total.P99)),
					m.ServerCPU, m.Result.Total.Errors)
				measurements = append(measurements, m)
			}
		}
		if o.profiles == "" || repetition < o.size.Repetitions-1 {
			continue
		}
		for _, t := range turns {
			if t.subject.only != "" && t.subject.only != l.Name {
				continue
			}
			if err := profileRun(ctx, o.profiles, t.system, t.subject, l, o.size); err != nil {
				return nil, fmt.Errorf("profiles of %s, %s: %w", t.subject.name, l.Name, err)
			}
		}
	}
	return measurements, nil
}

// progress prints what is going on to standard error. The report itself goes to standard output.
func progress(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
}

func writeJSON(path string, r *report) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results to %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
