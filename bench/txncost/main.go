package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
)

// config has the settings of the command line.
type config struct {
	rounds, warmUp int
	pause, trip    time.Duration
	bound          time.Duration
	only           *regexp.Regexp
	dir, endpoint  string
	together       bool
	contention     contentionConfig
	large          largeConfig
}

func main() {
	var c config
	what := flag.String("what", "cost,wait,contention,large", "what to measure")
	flag.IntVar(&c.rounds, "rounds", 1000, "how often each kind of operation is done")
	flag.IntVar(&c.warmUp, "warm-up", 200, "how often before that")
	flag.DurationVar(&c.pause, "pause", 5*time.Millisecond,
		"how long to wait before each operation")
	flag.DurationVar(&c.trip, "rtt", 500*time.Microsecond,
		"cost: how much longer a message and its answer take between the far client and the "+
			"nodes (0: no far client)")
	flag.DurationVar(&c.bound, "bound", goalBound, "wait: how far clocks are apart at most")
	page := flag.String("out", "",
		"also add the report, with the date as heading, to this `page` (docs/results/transactions.md)")
	only := flag.String("only", "",
		"cost: measure only the operations whose names match this `pattern`")
	flag.StringVar(&c.dir, "dir", "",
		"where the servers' data goes (default: the system's temporary directory)")
	flag.StringVar(&c.endpoint, "endpoint", "",
		"cost: measure the cluster at this `address` instead of one of its own")
	flag.BoolVar(&c.together, "together", false,
		"cost, wait: all nodes in this process (for profiles)")
	flag.IntVar(&c.contention.turns, "turns", 4,
		"contention: how many turns of puts and increments")
	flag.DurationVar(&c.contention.turn, "turn", 6*time.Second,
		"contention: how long a turn of each, and of the bank, is")
	flag.IntVar(&c.large.transactions, "transactions", 3, "large: how many transactions")
	flag.DurationVar(&c.large.idle, "idle", 10*time.Second,
		"large: how long to read while nothing else happens")
	flag.Parse()
	var err error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if c.only, err = regexp.Compile(*only); err == nil {
		if role := os.Getenv(roleVariable); role != "" {
			err = play(ctx, role)
		} else if c.bound <= 0 {
			err = fmt.Errorf("-bound %v: it has to be above 0", c.bound)
		} else {
			err = keep(*page, *what, func(out io.Writer) error {
				return run(ctx, out, &c, strings.Split(*what, ","))
			})
		}
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "txncost:", err)
		os.Exit(1)
	}
}

// keep prints the report of a run, and adds it to a page if there is one.
func keep(page, what string, run func(io.Writer) error) error {
	var text strings.Builder
	if err := run(io.MultiWriter(os.Stdout, &text)); err != nil || page == "" {
		return err
	}
	heading := fmt.Sprintf("%s: %s; %d processors, %s",
		time.Now().UTC().Format(time.DateOnly), what, runtime.NumCPU(), runtime.Version())
	return bench.AppendReport(page, heading, text.String())
}

func run(ctx context.Context, out io.Writer, c *config, what []string) error {
	for i, w := range what {
		if i > 0 {
			fmt.Fprintln(out)
		}
		var err error
		switch w {
		case "cost":
			err = measure(ctx, out, c, 0, costs)
		case "wait":
			err = measure(ctx, out, c, c.bound, waits(c.bound))
		case "contention":
			err = contention(ctx, out, c)
		case "large":
			err = large(ctx, out, c)
		default:
			err = fmt.Errorf("-what %s: cost, wait, contention and large are known", w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// measure runs operations in turns on a cluster with a clock bound. 0 means the default bound.
func measure(ctx context.Context, out io.Writer, c *config, bound time.Duration,
	kinds func(*kv.Client, *places) []*operation) error {
	addresses := []string{c.endpoint}
	if c.endpoint == "" || bound != 0 {
		cluster, end, err := startNodes(ctx, c, bound)
		if err != nil {
			return err
		}
		defer end()
		addresses = cluster
	}
	var options []kv.Option
	if bound != 0 {
		options = append(options, kv.MaxClockOffset(bound))
	}
	client, err := kv.Open(ctx, addresses, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	p, err := fill(ctx, client)
	if err != nil {
		return err
	}
	if bound == 0 {
		end, err := p.compare(ctx, c, client, addresses)
		if err != nil {
			return err
		}
		defer end()
	}
	operations := kinds(client, p)
	if err := takeTurns(ctx, c, operations); err != nil {
		return err
	}
	report(out, operations)
	return nil
}

// startNodes starts a cluster, in separate processes or in this process, and returns its addresses.
func startNodes(ctx context.Context, c *config, bound time.Duration) (addresses []string,
	end func(), err error) {
	if c.together {
		cluster, err := start(ctx, c.dir, bound)
		if err != nil {
			return nil, nil, err
		}
		return cluster.Endpoints(), cluster.close, nil
	}
	cluster, err := startSeparate(ctx, c.dir, bound)
	if err != nil {
		return nil, nil, err
	}
	return cluster.addresses, cluster.close, nil
}

// cluster is three nodes in this process.
type cluster struct {
	*embedded.Cluster
	dir string
}

// start starts a cluster and waits until it is ready.
func start(ctx context.Context, parent string, bound time.Duration) (*cluster, error) {
	dir, err := os.MkdirTemp(parent, "txncost")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	c.Cluster, err = embedded.StartCluster(ctx, embedded.ClusterConfig{
		Dir: dir, Nodes: 3, Cores: 1, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Configure: func(_ int, s *embedded.ServerConfig) {
			if bound != 0 {
				s.MaxOffset = bound
			}
		}})
	if err == nil {
		err = c.WaitReady(ctx)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) close() {
	if c.Cluster != nil {
		_ = c.Close() // its data is deleted now
	}
	_ = os.RemoveAll(c.dir)
}
