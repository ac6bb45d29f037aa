package main

import (
	"context"
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

	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

// options has the options of the command line.
type options struct {
	binary   string
	dir      string
	seed     uint64
	duration time.Duration
	network  string
	only     *regexp.Regexp
	pause    time.Duration
	wipe     bool
	// workloads has names of workloads. If it is empty, the standard workloads run.
	workloads []string
	beyond    bool
	keep      bool
	json      string
	// harness is the directory of the run. The supervisor gives it to the process that does the work.
	harness string
}

// errViolations means that the run ended, and that a promise was broken.
var errViolations = errors.New("there are violations")

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fail(2, err)
	}
	if o.harness != "" {
		fail(1, harness(o))
		return
	}
	os.Exit(supervise(o, os.Args[1:]))
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("nemesis", flag.ExitOnError)
	var only, names string
	flags.StringVar(&o.binary, "tidemark", "bin/tidemark", "Tidemark's program")
	flags.StringVar(&o.dir, "dir", "",
		"where directories of runs go (default: the system's temporary directory)")
	flags.Uint64Var(&o.seed, "seed", 0,
		"what the schedule is drawn from (default: another one each time, which is printed)")
	flags.DurationVar(&o.duration, "duration", 10*time.Minute,
		"how long faults happen; the checks come after it")
	flags.StringVar(&o.network, "network", "auto",
		"namespaces, proxies, or auto: namespaces where they are possible")
	flags.StringVar(&only, "only", "",
		"only the kinds of fault whose name matches this regular `expression`")
	flags.StringVar(&names, "workloads", "",
		"run these workloads of bench/proof/workloads, with commas between them (default: the "+
			"standard ones, without transactions)")
	flags.DurationVar(&o.pause, "pause", 5*time.Second,
		"report pauses that are longer and that the faults do not explain")
	flags.BoolVar(&o.wipe, "wipe", true, "at the end have a data node lose its directory")
	flags.BoolVar(&o.beyond, "beyond", false, "also set clocks off beyond the bound")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory also if nothing was wrong")
	flags.StringVar(&o.json, "json", "", "also write the report as JSON to this `file`")
	flags.StringVar(&o.harness, "harness", "",
		"do the work in this `directory` (the program starts itself so)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.network != "auto" && o.network != "namespaces" && o.network != "proxies" {
		return o, fmt.Errorf("-network %s: it is namespaces, proxies or auto", o.network)
	}
	if only != "" {
		if o.only, err = regexp.Compile(only); err != nil {
			return o, fmt.Errorf("-only: %w", err)
		}
	}
	if names != "" {
		o.workloads = strings.Split(names, ",")
		if _, err := workloads.Choose(withoutBackups(o.workloads)...); err != nil {
			return o, fmt.Errorf("-workloads: %w", err)
		}
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return o, err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return o, fmt.Errorf("no program to test: make it with `make build`, or name it with "+
			"-tidemark: %w", err)
	}
	return o, nil
}

func fail(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		os.Exit(code)
	}
}

// harness does the work, in an existing directory.
func harness(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	j, err := newJournal(os.Stdout, filepath.Join(o.harness, "schedule.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	j.say("seed %d, %v of faults; directory %s", o.seed, o.duration, o.harness)
	r, err := run(ctx, o, o.harness, j)
	if r != nil {
		fmt.Print("\n", r.summary())
		err = errors.Join(err, r.write(o.harness))
		if o.json != "" {
			err = errors.Join(err, r.writeJSON(o.json))
		}
		if len(r.Violations) > 0 {
			err = errors.Join(err, errViolations)
		}
	}
	return err
}
