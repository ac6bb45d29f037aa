package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
)

const (
	// glanceEvery is the number of steps between two looks at replicas and metrics.
	glanceEvery = 4
	// stoodStill is a limit: if this process did not run for so long during a step, the step's figures
	// do not count.
	stoodStill = 500 * time.Millisecond
	// clockMemory is the time for which servers may still report a wrong clock after the clock is
	// right again.
	clockMemory = 15 * time.Second
)

// nemesis is one run.
type nemesis struct {
	*world
	options   options
	probes    *probes
	workloads []driver.Workload
	// coordination opens the clients of the coordination service.
	coordination *driver.EtcdService
	samples      []availability.Sample
	// clocksUntil is the time until which servers may report a wrong clock.
	clocksUntil time.Time
	checked     string // the result of the check of the histories
}

// wholeHistory is the longest run for which the whole history is kept in memory.
const wholeHistory = 15 * time.Minute

// run does a whole run, from an empty directory to a report. The error is an error of the harness,
// or says that a violation was found.
func run(ctx context.Context, o options, dir string, j *journal) (_ *report, err error) {
	w, err := newWorld(o, dir, j)
	if err != nil {
		return nil, err
	}
	n := &nemesis{world: w, options: o}
	defer func() { err = errors.Join(err, w.close()) }()
	if n.workloads, err = loads(o.workloads, dir); err != nil {
		return nil, err
	}
	w.proof = driver.NewRun(func(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
		return kv.Open(ctx, w.cluster.Endpoints(), options...)
	})
	var members []string
	for _, s := range w.cluster.Cores {
		members = append(members, s.Address())
	}
	n.coordination = &driver.EtcdService{Endpoints: members}
	w.proof.OpenEtcd = n.coordination.Open
	var look lookout
	w.proof.Weather.Look = func() { look.look(&w.proof.Weather) }
	// Long runs check the history in parts, and drop the checked parts. Short runs keep the whole
	// history for the report.
	w.proof.Incremental = o.duration > wholeHistory
	w.proof.OnViolation = func() { j.say("VIOLATION; what was being done: %s", j.doing()) }
	w.proof.Weather.Begin()
	begin := time.Now()
	if err := w.startAll(allServers()); err != nil {
		return nil, err
	}
	if err := n.setUp(ctx); err != nil {
		return nil, err
	}
	defer func() {
		n.probes.stop()
		err = errors.Join(err, n.probes.client.Close())
	}()
	w.proof.Weather.End(calm.Settling(calm.Restarts, electionTimeout))
	j.say("%d core servers and %d data nodes serve after %v", cores, nodes,
		time.Since(begin).Round(ms))

	driving, stopDriving := context.WithCancel(ctx)
	defer stopDriving()
	clients, err := n.drive(driving)
	if err != nil {
		return nil, err
	}
	var progress sync.WaitGroup
	progress.Go(func() { n.tell(driving) })
	progress.Go(func() { look.watch(driving, &w.proof.Weather) })
	broken := n.steps(ctx)
	if broken == nil && len(w.proof.Violations()) == 0 {
		broken = n.rest(ctx)
	}
	if broken == nil && o.wipe && ctx.Err() == nil && len(w.proof.Violations()) == 0 {
		// From here on only the probes write. The replicas of the node that loses its directory are not
		// rebuilt.
		stopDriving()
		clients.Wait()
		n.finalChecks(ctx)
		broken = n.wipe(ctx)
	} else {
		stopDriving()
		clients.Wait()
		if broken == nil && ctx.Err() == nil {
			n.finalChecks(ctx)
		} else {
			n.checked = "not checked, the run was ended before its time"
		}
	}
	stopDriving()
	progress.Wait()
	if broken != nil && !errors.Is(broken, context.Canceled) {
		return n.report(), broken
	}
	return n.report(), nil
}

// setUp waits for the cluster, and creates the keyspaces of the workloads and the probes.
func (n *nemesis) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	if err := n.cluster.WaitReady(ctx); err != nil {
		return err
	}
	client, err := n.proof.Open(ctx)
	if err != nil {
		return err
	}
	if err := n.limitPlacement(); err != nil {
		return errors.Join(err, client.Close())
	}
	for _, load := range n.workloads {
		if err := load.Setup(ctx, n.proof); err != nil {
			return errors.Join(fmt.Errorf("setting %s up: %w", load.Name(), err), client.Close())
		}
	}
	if n.probes, err = startProbes(ctx, n.proof, client, n.pace); err != nil {
		return errors.Join(err, client.Close())
	}
	return nil
}

// drive starts the workloads' clients. They end with ctx.
func (n *nemesis) drive(ctx context.Context) (*sync.WaitGroup, error) {
	ctx, stop := context.WithCancel(ctx)
	context.AfterFunc(ctx, stop)
	random := rand.New(rand.NewPCG(n.options.seed, 0x6472697665))
	var running sync.WaitGroup
	for _, load := range n.workloads {
		for i := range load.Clients() {
			source := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			client, hangUp, err := n.proof.Connect(ctx, load.Name())
			if err != nil {
				stop()
				running.Wait()
				return nil, fmt.Errorf("a client of %s: %w", load.Name(), err)
			}
			running.Go(func() {
				defer hangUp()
				load.Drive(ctx, n.proof, i, client, source)
			})
		}
	}
	return &running, nil
}

// tell prints a line with the state of the run every ten seconds.
func (n *nemesis) tell(ctx context.Context) {
	const every = 10 * time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for before := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		total := succeeded(n.proof.Operations())
		n.journal.say("%d operations, %.0f/s; %d violations, %d findings; %s", total,
			float64(total-before)/every.Seconds(),
			len(n.proof.Violations()), len(n.journal.findings()), n.journal.doing())
		before = total
	}
}

// failures has the names of errors that package proof appends to the names of operations.
var failures = func() []string {
	names := []string{"deadline", "cancelled"}
	for _, err := range []error{kv.ErrOutcomeUnknown, kv.ErrNotFound, kv.ErrOverloaded,
		kv.ErrDiskFull, kv.ErrNoQuorum,
		kv.ErrTimestampTooOld, kv.ErrTimestampInFuture, kv.ErrUnavailable, kv.ErrClosed} {
		names = append(names, err.Error())
	}
	return names
}()

// succeeded returns the number of operations that succeeded.
func succeeded(operations map[string]int) int {
	sum := 0
	for what, count := range operations {
		failed := strings.Contains(what, " other: ") || slices.ContainsFunc(failures,
			func(name string) bool { return strings.HasSuffix(what, " "+name) })
		if !failed {
			sum += count
		}
	}
	return sum
}

// steps goes through the schedule until the time is over, ctx ends, or there is a violation.
func (n *nemesis) steps(ctx context.Context) error {
	available := have(n.disks)
	chosen := slices.Clone(kinds)
	if n.options.beyond {
		chosen = append(chosen, beyond)
	}
	if n.options.only != nil {
		chosen = slices.DeleteFunc(chosen,
			func(k kind) bool { return !n.options.only.MatchString(k.name) })
	}
	s := newSchedule(n.options.seed, chosen, available)
	if s.total == 0 {
		return errors.New("no kind of fault is chosen that this machine can have")
	}
	for _, k := range chosen {
		if k.needs&^available != 0 {
			n.journal.say("not possible here: %s", k.name)
		}
	}
	end := time.Now().Add(n.options.duration)
	for i := 1; time.Now().Before(end); i++ {
		if err := n.step(ctx, i, s.next()); err != nil {
			return err
		}
		if i%glanceEvery == 0 {
			n.watchMetrics(ctx)
			n.glance(ctx)
		}
		if i%restEvery == 0 {
			if err := n.rest(ctx); err != nil {
				return err
			}
		}
		if len(n.proof.Violations()) > 0 {
			return nil
		}
	}
	return nil
}

// moment is an action of the schedule at a time.
type moment struct {
	at time.Time
	do func() error
}

// step starts and ends the faults of a step, waits until everything serves again, and judges the
// pauses.
func (n *nemesis) step(ctx context.Context, number int, s step) error {
	n.journal.note("%d: rest", number)
	if err := pass(ctx, s.rest); err != nil {
		return err
	}
	var err error
	if n.placed, err = n.where(ctx); err != nil {
		return err
	}
	begin := time.Now()
	n.probes.begin(begin)
	// The effects of the faults end some time after everything serves again.
	n.proof.Weather.Begin()
	settling := time.Duration(0)
	for _, d := range s.faults {
		settling = max(settling, calm.Settling(d.kind.settles, electionTimeout))
	}
	defer func() { n.proof.Weather.End(settling) }()
	var moments []moment
	var effects []effect
	var what []string
	at := func(when time.Time, do func() error) {
		i, _ := slices.BinarySearchFunc(moments, when,
			func(m moment, t time.Time) int { return m.at.Compare(t) })
		moments = slices.Insert(moments, i, moment{when, do})
	}
	for _, d := range s.faults {
		at(begin.Add(d.after), func() error {
			f, err := d.kind.begin(n.world, rand.New(rand.NewPCG(d.seed, 0)), d.hold)
			if err != nil {
				return fmt.Errorf("%s: %w", d.kind.name, err)
			}
			text := fmt.Sprintf("%s: %s, for %v", d.kind.name, f.what, d.hold.Round(ms))
			n.journal.note("%d: %s", number, text)
			effects, what = append(effects, f.effect), append(what, text)
			over := time.Now().Add(d.hold)
			if f.again != nil {
				var again func() error
				again = func() error {
					pause, err := f.again()
					if next := time.Now().Add(pause); next.Before(over) {
						at(next, again)
					}
					return err
				}
				at(time.Now().Add(f.next), again)
			}
			at(over, func() error {
				n.journal.note("%d: over: %s", number, text)
				return f.end()
			})
			return nil
		})
	}
	for len(moments) > 0 {
		next := moments[0]
		if err := pass(ctx, time.Until(next.at)); err != nil {
			return err
		}
		moments = slices.Delete(moments, 0, 1)
		if err := next.do(); err != nil {
			return err
		}
		n.probes.bear(n.layers.now(), n.placed.voters)
		n.watchProcesses()
	}
	over := time.Now()
	n.journal.note("%d: whole again; until everything serves", number)
	whole, err := n.recovered(ctx, over)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(s.faults, func(d drawn) bool { return d.kind.name == beyond.name }) {
		n.clocksUntil = time.Now().Add(clockMemory)
	}
	n.judge(number, s, join(effects), what, whole)
	n.watchProcesses()
	return n.watchLogs(time.Now().Before(n.clocksUntil))
}

// recovered waits until every server is ready and every partition answers. whole is the time when
// the servers were ready. If the cluster does not recover, it is a violation.
func (n *nemesis) recovered(ctx context.Context, over time.Time) (whole time.Time, err error) {
	waiting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	var running []*process.Process
	for _, s := range n.servers {
		running = append(running, s.Process())
	}
	err = process.Until(waiting, "every server is ready", 50*ms, n.ready, running...)
	whole = time.Now()
	if err == nil {
		err = process.Until(waiting, "every partition answers", 20*ms,
			func(context.Context) error { return n.probes.silent(over) }, running...)
	}
	if ctx.Err() != nil {
		return whole, ctx.Err()
	}
	if err != nil {
		n.proof.Violation("everything is whole again, and: %v", err)
	}
	return whole, nil
}

// judge records the pauses of a step.
func (n *nemesis) judge(number int, s step, e effect, what []string, whole time.Time) {
	now := time.Now()
	sample := availability.Sample{Kind: s.faults[0].kind.name, What: strings.Join(what, "; "),
		Quorum: true}
	if len(s.faults) > 1 {
		sample.Kind = "several of these at once"
	}
	for _, d := range s.faults {
		sample.Hold = max(sample.Hold, d.after+d.hold)
	}
	if still := n.probes.still.Longest(); still > stoodStill {
		sample.LeftOut = fmt.Sprintf("the machine had no time for this program for %v",
			still.Round(ms))
	}
	serves := n.placed.serves(e)
	for _, meter := range []struct {
		what    string
		longest *time.Duration
		gaps    []availability.Gap
	}{{"writes", &sample.Writes, n.probes.writes.End(now)}, {"reads", &sample.Reads,
		n.probes.reads.End(now)}} {
		var long []string
		var worst availability.Gap
		for partition, gap := range meter.gaps {
			if gap.Length() > *meter.longest {
				*meter.longest, worst = gap.Length(), gap
			}
			sample.Quorum = sample.Quorum && serves[partition]
			if why := unexplained(gap, serves[partition], whole, n.options.pause); why != "" {
				long = append(long, fmt.Sprintf("partition %d (on %s, led by %s before) %s, "+
					"from %s to %s", partition, n.names(n.placed.voters[partition]),
					n.leaderName(partition), why, gap.From.UTC().Format("15:04:05.000"),
					gap.To.UTC().Format("15:04:05.000")))
			}
		}
		if worst.Length() > time.Second {
			n.journal.note("%d: the longest pause of %s was from %s to %s", number, meter.what,
				worst.From.UTC().Format("15:04:05.000"), worst.To.UTC().Format("15:04:05.000"))
		}
		if len(long) > 0 && sample.LeftOut == "" {
			n.journal.finding("step %d, %s: %s of %d partitions: %s", number, sample.What,
				meter.what, len(long), strings.Join(long[:min(3, len(long))], "; "))
		}
	}
	n.samples = append(n.samples, sample)
	n.journal.note("%d: %s: writes away for %v, reads for %v, all ready %v after the end %s",
		number, sample.Kind, sample.Writes.Round(ms), sample.Reads.Round(ms),
		now.Sub(whole).Round(ms), sample.LeftOut)
}

func (n *nemesis) leaderName(partition int) string {
	if leader := n.placed.leader[partition]; leader >= 0 {
		return n.servers[leader].Name
	}
	return "none"
}

// pass waits for a duration.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// finalChecks checks everything after the workloads have ended.
func (n *nemesis) finalChecks(ctx context.Context) {
	n.journal.note("the workloads have ended; checking")
	checking, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	client, hangUp, err := n.proof.Connect(checking, "")
	if err != nil {
		n.proof.Violation("a client at the end: %v", err)
		return
	}
	defer hangUp()
	for _, load := range n.workloads {
		if err := load.Check(checking, n.proof, client.For(load.Name())); err != nil {
			n.proof.Violation("%s: %v", load.Name(), err)
		}
	}
	n.probes.stop()
	n.proof.Judge()
	n.checkReplicas(ctx)
	n.awaitCore("at the end", 0, recovery, nil)
	n.watchMetrics(ctx)
	n.watchProcesses()
	if err := n.watchLogs(time.Now().Before(n.clocksUntil)); err != nil {
		n.proof.Violation("%v", err)
	}
	n.journal.note("checking the histories")
	for _, violation := range n.proof.CheckAll() {
		n.proof.Violation("%s", violation)
	}
	checked := history.Check(n.proof.History.Operations(), time.Minute)
	n.checked = checked.String()
	if err := checked.Err(); err != nil {
		n.proof.Violation("%v", err)
		for i, f := range checked.Failures {
			if err := f.WriteHTML(fmt.Sprintf("%s/history-%d.html", n.dir, i)); err != nil {
				n.journal.say("%v", err)
			}
		}
	}
}
