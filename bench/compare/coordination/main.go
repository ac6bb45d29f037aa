package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "coordination:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	tidemark    string
	duration    time.Duration
	warmUp      time.Duration
	repetitions int
	watchers    int
	leases      int
	keys        int
	connections int
	cases       []string
	profiles    string
	ceiling     bool
}

func run(ctx context.Context) error {
	var s settings
	var cases, nothing string
	flag.StringVar(&s.tidemark, "tidemark", "bin/tidemark", "the binary to measure")
	flag.DurationVar(&s.duration, "duration", 10*time.Second, "how long each measurement takes")
	flag.DurationVar(&s.warmUp, "warm-up", 5*time.Second,
		"how long new servers are written to before puts are measured")
	flag.IntVar(&s.repetitions, "repetitions", 3, "how often each case is measured")
	flag.IntVar(&s.watchers, "watchers", 10_000, "watchers of one key")
	flag.IntVar(&s.leases, "leases", 10_000, "leases that are kept alive")
	flag.IntVar(&s.keys, "keys", 1_000_000, "keys of the memory case")
	flag.IntVar(&s.connections, "connections", 8, "connections of the client to the leader")
	flag.StringVar(&s.profiles, "profiles", "",
		"a directory for processor profiles of Tidemark's servers, one for each case")
	flag.BoolVar(&s.ceiling, "ceiling", false,
		"also measure puts and gets of a gRPC server that does nothing: the most that the "+
			"client reaches")
	flag.StringVar(&nothing, "serve-nothing", "",
		"be that server, at this address, until interrupted; the program starts it by itself")
	flag.StringVar(&cases, "cases", "put1,put64,put256,get1,get64,get256,watch,leases,memory",
		"which cases, separated by commas")
	flag.Parse()
	if nothing != "" {
		return serveNothing(nothing)
	}
	s.cases = strings.Split(cases, ",")
	dir, err := os.MkdirTemp("", "coordination-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	results := &results{}
	for repetition := range s.repetitions {
		if err := repeat(ctx, &s, filepath.Join(dir, fmt.Sprint(repetition)), repetition,
			results); err != nil {
			return err
		}
	}
	fmt.Print(results.table())
	return nil
}

// repeat measures all cases once, with new servers.
func repeat(ctx context.Context, s *settings, dir string, repetition int, r *results) error {
	var subjects []*subject
	defer func() {
		for _, x := range subjects {
			_ = x.close()
		}
	}()
	starts := []func(context.Context, *settings, string) (*subject, error){startEtcd, startTidemark}
	if s.ceiling {
		starts = append(starts, startCeiling)
	}
	for _, start := range starts {
		x, err := start(ctx, s, dir)
		if err != nil {
			return err
		}
		subjects = append(subjects, x)
		if x.name == "tidemark" {
			subjects = append(subjects, x.directly())
		}
	}
	if repetition%2 == 1 {
		slices.Reverse(subjects)
	}
	for _, name := range s.cases {
		measure := measurements[name]
		if measure == nil {
			return fmt.Errorf("there is no case %q", name)
		}
		for _, x := range subjects {
			if x.name == ceilingName && !measuresCeiling(name) || x.direct && name == "memory" {
				continue
			}
			if err := x.connect(ctx, s.connections); err != nil {
				return err
			}
			profiled := x.profile(ctx, s, name)
			f, err := measure(ctx, s, x)
			err = errors.Join(err, profiled())
			if err != nil {
				return errors.Join(fmt.Errorf("%s of %s: %w", name, x.name, err), ctx.Err())
			}
			fmt.Fprintf(os.Stderr, "%s %s: %s\n", name, x.name, f)
			r.add(name, x.name, f)
			// Remaining work of the servers must not affect the next measurement.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}
