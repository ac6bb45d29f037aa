package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
)

type options struct {
	binary, dir          string
	duration, calm, best time.Duration
	times                float64
	memory               int64
	every                time.Duration
	keepDir, together    bool
	// flood is true in the process that sends the flood. Its rates come on standard input.
	flood     bool
	addresses string
}

func main() {
	o, err := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case err != nil:
	case o.flood:
		err = runFlood(ctx, o)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("overload", flag.ExitOnError)
	f.StringVar(&o.binary, "tidemark", "bin/tidemark", "Tidemark's program")
	f.StringVar(&o.dir, "dir", "",
		"directory of the run (default: a new temporary one, removed after a run without violations)")
	f.DurationVar(&o.duration, "duration", 15*time.Minute, "how long the overload lasts")
	f.DurationVar(&o.calm, "calm", 30*time.Second, "how long calm is measured before it")
	f.DurationVar(&o.best, "best", 30*time.Second, "how long the best rate is measured")
	f.Float64Var(&o.times, "times", 3, "how many times the best rate is asked for")
	f.Int64Var(&o.memory, "memory", 1<<30, "bytes of memory that each server may use")
	f.DurationVar(&o.every, "every", 10*time.Second, "how often a line is printed")
	f.BoolVar(&o.together, "together", false,
		"let servers and clients share all processors; otherwise each have half of them")
	f.BoolVar(&o.flood, "flood", false, "be the process that makes the flood")
	f.StringVar(&o.addresses, "addresses", "", "addresses of the servers, for -flood")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.times <= 0 || o.duration <= 0 || o.best <= 0 || o.calm <= 0 || o.every <= 0 {
		return o, errors.New("durations and -times have to be more than 0")
	}
	if o.flood {
		return o, nil
	}
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "tidemark-overload-")
		return o, err
	}
	o.keepDir = true
	return o, os.MkdirAll(o.dir, 0o755)
}

// These are the rates of the clients other than the flood, as parts of the best rate, in calm and
// in overload.
const (
	highPart, modestPart, lowPart = 0.03, 0.10, 0.20
	calmPart                      = 0.20 // the rate of the flood in calm
)

// The goals of a run.
const (
	leastGoodput = 0.85
	mostTimes    = 3.0
	calmAgain    = 5 * time.Second
	// calmTimes bounds the 99th percentile in a second that counts as calm again: at most so many
	// times the percentile in calm.
	calmTimes = 2.0
	// spare is the factor by which the resident memory of a server may exceed its limit. Go returns
	// unused memory to the system late.
	spare = 1.25
)

// run does one run. Its error describes the violated goals.
func run(ctx context.Context, o options) error {
	var servers []int
	if !o.together {
		var err error
		if servers, err = apart(); err != nil {
			return err
		}
	}
	c, err := newCluster(o, servers)
	if err != nil {
		return err
	}
	defer c.kill()
	client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for _, name := range []string{"flood", "modest", "low"} {
		if _, err := client.CreateKeyspace(ctx, name, kv.Hash(8)); err != nil {
			return err
		}
	}
	best, err := findBest(ctx, o, c, client)
	if err != nil {
		return err
	}
	fmt.Printf("best: %.0f requests a second, %.0f in each second of the servers' processors\n",
		best.rate, best.perSecond)
	flood, err := startFlood(o, c.addresses)
	if err != nil {
		return err
	}
	defer flood.end()
	r := &running{options: o, cluster: c, flood: flood, best: best,
		high:   newLoad("high", client.Keyspace("flood"), kv.PriorityHigh),
		modest: newLoad("modest", client.Keyspace("modest"), kv.PriorityNormal)}
	return r.phases(ctx)
}

// apart keeps this process, and the process of the flood that it starts, on the second half of the
// processors, and returns the first half for the servers. So the clients cannot take processor time
// from the servers: on machines of their own they could not either. It returns nil if there is only
// one processor, or if processes cannot be kept to processors here.
func apart() (servers []int, err error) {
	all, err := process.Processors()
	if err != nil || len(all) < 2 {
		fmt.Println("servers and clients share all processors")
		return nil, nil
	}
	half := len(all) / 2
	fmt.Printf("the servers run on the processors %v, the clients on %v\n", all[:half], all[half:])
	return all[:half], process.RunOn(all[half:])
}

// rates are how many requests the cluster answers in a second, and in each second of processor
// time of the servers.
type rates struct{ rate, perSecond float64 }

// findBest measures how many requests a second the cluster answers to clients that wait for
// their answers. It tries several numbers of clients and returns the best rate.
func findBest(ctx context.Context, o options, c *cluster, client *kv.Client) (best rates, err error) {
	for _, clients := range []int{32, 64, 128, 256} {
		l := newLoad("best", client.Keyspace("flood"), kv.PriorityNormal)
		l.closed(ctx, clients)
		pause(ctx, o.best/12)
		before, used, began := l.counts(), c.processorSeconds(), time.Now()
		pause(ctx, o.best/4)
		done, took := l.counts().minus(before), time.Since(began)
		used = c.processorSeconds() - used
		l.stop()
		if ctx.Err() != nil {
			return best, ctx.Err()
		}
		h, failure := l.take()
		rate := float64(done.OK) / took.Seconds()
		fmt.Printf("%3d clients: %.0f requests a second, p50 %s, p99 %s, %d failed; the servers use "+
			"%.2f processors\n", clients, rate, short(quantile(h, 50)), short(quantile(h, 99)),
			done.Failed, used/took.Seconds())
		if failure != nil {
			fmt.Println("  ", failure)
		}
		if rate > best.rate {
			best = rates{rate: rate, perSecond: float64(done.OK) / max(used, 0.01)}
		}
	}
	return best, nil
}

// running is a run with its loads.
type running struct {
	options
	cluster      *cluster
	flood        *floodProcess
	best         rates
	high, modest *load
	violations   []error
}

func (r *running) violated(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	fmt.Println("VIOLATION:", err)
	r.violations = append(r.violations, err)
}

// window has the counts of a span of time, and the 99th percentile of the requests of high
// priority.
type window struct {
	took                time.Duration
	high, modest, flood counts
	p99                 time.Duration
	// servers and clients are the processor time that servers and clients used, in seconds.
	servers, clients float64
}

func (w window) goodput() float64 {
	return float64(w.high.OK+w.modest.OK+w.flood.OK) / w.took.Seconds()
}

// watch measures for the duration d, in windows of length every.
func (r *running) watch(ctx context.Context, phase string, d, every time.Duration) (all []window) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		high, modest, flood, began := r.high.counts(), r.modest.counts(), r.flood.counts(), time.Now()
		servers, clients := r.cluster.processorSeconds(), r.flood.processorSeconds()
		pause(ctx, min(every, time.Until(end)))
		w := window{took: time.Since(began), high: r.high.counts().minus(high),
			modest: r.modest.counts().minus(modest), flood: r.flood.counts().minus(flood),
			servers: r.cluster.processorSeconds() - servers,
			clients: r.flood.processorSeconds() - clients}
		h, failedHigh := r.high.take()
		m, failedModest := r.modest.take()
		w.p99 = quantile(h, 99)
		all = append(all, w)
		fmt.Printf("%-9s %6.0f/s; high p50 %s p99 %s max %s, %d failed; modest p99 %s, %d failed; "+
			"flood %d ok, %d refused, %d too late, %d not made; processors: servers %.2f, clients %.2f; "+
			"memory %s\n", phase+":", w.goodput(),
			short(quantile(h, 50)), short(w.p99), short(quantile(h, 100)), w.high.Failed+w.high.NotMade,
			short(quantile(m, 99)), w.modest.Failed+w.modest.NotMade, w.flood.OK, w.flood.Refusals,
			w.flood.Failed-w.flood.Refusals, w.flood.NotMade, w.servers/w.took.Seconds(),
			w.clients/w.took.Seconds(), r.cluster.memory())
		for _, err := range []error{failedHigh, failedModest, r.flood.failure()} {
			if err != nil {
				fmt.Println("  ", err)
			}
		}
		if err := r.cluster.check(int64(spare * float64(r.memory))); err != nil {
			r.violated("%w", err)
			return all
		}
	}
	return all
}

// median returns the median of the 99th percentiles of windows.
func median(all []window) time.Duration {
	var p99 []time.Duration
	for _, w := range all {
		p99 = append(p99, w.p99)
	}
	if len(p99) == 0 {
		return 0
	}
	slices.Sort(p99)
	return p99[len(p99)/2]
}

func (r *running) phases(ctx context.Context) error {
	r.flood.rates(calmPart*r.best.rate, lowPart*r.best.rate/4)
	r.high.open(ctx, highPart*r.best.rate)
	r.modest.open(ctx, modestPart*r.best.rate)
	r.watch(ctx, "begin", 5*time.Second, r.every)
	terms, err := r.cluster.terms(ctx)
	if err != nil {
		return err
	}
	calm := median(r.watch(ctx, "calm", r.calm, r.every))
	r.flood.rates((r.times-highPart-modestPart-lowPart)*r.best.rate, lowPart*r.best.rate)
	storm := r.watch(ctx, "overload", r.duration, r.every)
	r.flood.rates(calmPart*r.best.rate, lowPart*r.best.rate/4)
	ended := time.Now()
	after := r.watch(ctx, "after", calmAgain, time.Second)
	r.check(calm, storm, after)
	then, err := r.cluster.terms(ctx)
	if err != nil {
		return err
	}
	for partition, term := range then {
		if was := terms[partition]; was != term {
			r.violated("partition %d had an election: term %d, and %d before", partition, term, was)
		}
	}
	r.high.stop()
	r.modest.stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := errors.Join(r.violations...); err != nil {
		return fmt.Errorf("%s after the end of the overload: violations:\n%w",
			time.Since(ended).Round(time.Second), err)
	}
	fmt.Println("0 violations")
	if r.keepDir {
		return nil
	}
	r.cluster.kill()
	return os.RemoveAll(r.dir)
}

// check compares the windows with the goals.
func (r *running) check(calm time.Duration, storm, after []window) {
	var all counts
	var modest counts
	took, servers := time.Duration(0), 0.0
	for _, w := range storm {
		servers += w.servers
		all = all.plus(w.high).plus(w.modest).plus(w.flood)
		modest = modest.plus(w.modest)
		took += w.took
	}
	goodput := float64(all.OK) / took.Seconds() / r.best.rate
	times := float64(median(storm)) / float64(max(calm, 1))
	fmt.Printf("goodput %.0f %% of the best (goal %.0f %%); high priority p99 %s in calm, %s in "+
		"overload: %.2f times (goal %.0f)\n", 100*goodput, 100*leastGoodput, short(calm),
		short(median(storm)), times, mostTimes)
	fmt.Printf("the servers used %.2f processors; goodput in each second of their processor time "+
		"%.0f %% of that at the best rate\n", servers/took.Seconds(),
		100*float64(all.OK)/max(servers, 0.01)/r.best.perSecond)
	if goodput < leastGoodput {
		r.violated("goodput is %.0f %% of the best", 100*goodput)
	}
	if times > mostTimes {
		r.violated("the p99 of high priority is %.2f times that in calm", times)
	}
	if n := modest.Failed + modest.NotMade; n > 0 {
		r.violated("%d of %d requests of the modest tenant failed", n, n+modest.OK)
	}
	if last := after[len(after)-1]; last.p99 > time.Duration(calmTimes*float64(calm)) {
		r.violated("%s after the end the p99 is %s, in calm it was %s", calmAgain, last.p99, calm)
	}
}

// floodProcess is the process that sends the flood. It prints its counts every 100 ms.
type floodProcess struct {
	cmd   *exec.Cmd
	input *json.Encoder
	state floodState
}

func startFlood(o options, addresses []string) (*floodProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &floodProcess{cmd: exec.Command(self, "-flood", "-addresses", strings.Join(addresses, ","))}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.dir, "flood.log"))
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = log
	p.input = json.NewEncoder(in)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.state.set(lines.Bytes())
		}
		p.state.ended()
	}()
	return p, nil
}

// rates sets the rates of the flood and of the requests of low priority, in requests a second.
func (p *floodProcess) rates(flood, low float64) { _ = p.input.Encode(floodRates{flood, low}) }

func (p *floodProcess) counts() counts { return p.state.counts() }

func (p *floodProcess) failure() error { return p.state.failure() }

// processorSeconds returns the processor time of all clients: those of the flood, and those of this
// process.
func (p *floodProcess) processorSeconds() (seconds float64) {
	for _, pid := range []int{p.cmd.Process.Pid, os.Getpid()} {
		if u, err := process.ReadUsage(pid); err == nil {
			seconds += u.CPUSeconds()
		}
	}
	return seconds
}

func (p *floodProcess) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func short(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
