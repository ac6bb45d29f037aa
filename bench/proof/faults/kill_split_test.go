package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

var (
	splitKills = flag.Int("faults.split-kills", 30,
		"how many processes TestKillsWhileSplitting kills, one after the other")
	splitKillGap = flag.Duration("faults.split-kill-gap", 250*time.Millisecond,
		"the time between the beginnings of two splits or merges of TestKillsWhileSplitting")
	splitKillSeed = flag.Uint64("faults.split-kill-seed", 1, "the seed of its random moments")
)

// killedRows is a keyspace whose partitions split while rows are written to it.
const killedRows = "killed-rows"

// TestKillsWhileSplitting kills a random process at a random moment and restarts it, many times,
// while partitions split and merge under load. At the end every key belongs to exactly one
// partition, the statistics of each partition equal a count, every acknowledged write is there, and
// the workloads have found no violation.
func TestKillsWhileSplitting(t *testing.T) {
	e := newEnvironment(t, 10*time.Minute+time.Duration(*splitKills)*15*time.Second, threeServers())
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	_, err := client.CreateKeyspace(e.ctx, killedRows, kv.Range(), kv.AutoSplit(false))
	e.must(err, "create keyspace %s", killedRows)
	loads, err := workloads.Choose(stormLoads...)
	e.must(err, "choose workloads")
	p, err := startProof(e.ctx, e.cluster, loads)
	e.must(err, "start the workloads")
	defer p.stop()
	for _, name := range stormLoads {
		e.must(client.AlterKeyspace(e.ctx, name, kv.AutoSplit(false)), "alter keyspace %s", name)
	}
	rows := startRows(e.ctx, e.open(killedRows))
	defer rows.stop()

	splitting, stopSplitting := context.WithCancel(e.ctx)
	defer stopSplitting()
	s := &storm{client: e.open("unused").client, every: *splitKillGap, sites: append([]site{
		{keyspace: killedRows, before: "row-03-~"},
		{keyspace: killedRows, before: "row-05-~", rises: true},
	}, stormSites...)}
	var storming sync.WaitGroup
	storming.Go(func() { s.run(splitting) })

	p.Weather.Begin()
	random := rand.New(rand.NewPCG(*splitKillSeed, 26))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	began := time.Now()
	var back time.Duration
	for i := range *splitKills {
		victim := e.cluster.Nodes[random.IntN(len(e.cluster.Nodes))]
		e.must(victim.Kill(), "kill %s", victim.Name)
		e.pass(upTo(300 * time.Millisecond))
		e.must(victim.Start(), "restart %s", victim.Name)
		if random.IntN(2) == 0 {
			// Wait, so that the next kill does not hit a server that is still starting.
			restarting := time.Now()
			e.must(e.cluster.WaitReady(e.ctx), "restart %s", victim.Name)
			back = max(back, time.Since(restarting))
		}
		e.pass(upTo(1200 * time.Millisecond))
		if (i+1)%25 == 0 {
			e.Logf("%d kills after %v, all ready again after %v at most; %d splits and merges, %d "+
				"rows written", i+1,
				time.Since(began).Round(time.Second), back.Round(time.Millisecond), s.done.Load(),
				rows.written.Load())
			back = 0
		}
	}
	e.must(e.cluster.WaitReady(e.ctx), "restart")
	took := time.Since(began)
	stopSplitting()
	storming.Wait()
	p.Weather.End(calm.Settling(calm.Restarts, 2*time.Second))
	acknowledged, unknown := rows.stop()
	e.wait(2*time.Minute, "nothing is under way", func(ctx context.Context) error {
		under, err := admin.New(client).Operators(ctx)
		if len(under) > 0 {
			err = errors.Join(err, fmt.Errorf("%d are, of which one is %+v", len(under), under[0]))
		}
		return err
	})
	e.pass(10 * time.Second) // the workloads run in calm
	wrong := p.judge(e.ctx)
	partitions := 0
	for _, name := range append([]string{killedRows}, stormLoads...) {
		e.wait(2*time.Minute, "every key belongs to one partition, and the partitions count right",
			func(ctx context.Context) error {
				n, err := everyKeyOnce(ctx, client, name)
				partitions += n
				return err
			})
	}
	e.must(allRows(e.ctx, client.Keyspace(killedRows), acknowledged, unknown), "read all rows")
	done, _ := p.Transactions()
	e.result("%d kills in %v; %s; %d partitions at the end; %d rows acknowledged and all there, %d "+
		"unknown; %d transactions", *splitKills, took.Round(time.Second), s.report(), partitions,
		len(acknowledged), len(unknown), done)
	if wrong != nil {
		e.Errorf("what the clients were told cannot be:\n%v", wrong)
	}
	if s.done.Load() < int64(*splitKills) {
		e.Errorf("%d splits and merges are too few for %d kills: nearly none can have been cut through",
			s.done.Load(), *splitKills)
	}
}

// rowWriters put rows, each with a new key, and record the outcomes.
type rowWriters struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	written atomic.Int64
	mu      sync.Mutex
	// acknowledged and unknown have the values of the writes with that outcome, by key.
	acknowledged, unknown map[string]string
}

// startRows starts eight writers with 20 rows a second each.
func startRows(ctx context.Context, store *Store) *rowWriters {
	w := &rowWriters{acknowledged: map[string]string{}, unknown: map[string]string{}}
	ctx, w.cancel = context.WithCancel(ctx)
	for i := range 8 {
		w.running.Go(func() {
			ticker := time.NewTicker(50 * time.Millisecond)
			defer ticker.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				key, value := fmt.Sprintf("row-%02d-%08d", i, n), fmt.Sprintf("value %d of %d", n, i)
				putting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				err := store.Put(putting, key, value)
				cancel()
				w.mu.Lock()
				switch {
				case err == nil:
					w.acknowledged[key] = value
					w.written.Add(1)
				case !certainlyRefused(err):
					w.unknown[key] = value
				}
				w.mu.Unlock()
			}
		})
	}
	return w
}

func (w *rowWriters) stop() (acknowledged, unknown map[string]string) {
	w.cancel()
	w.running.Wait()
	return w.acknowledged, w.unknown
}

// allRows checks that a keyspace has all acknowledged rows, and no other rows except rows of
// unknown outcome.
func allRows(ctx context.Context, rows *kv.Keyspace,
	acknowledged, unknown map[string]string) error {
	var wrong collected
	found := 0
	for pair, err := range rows.Scan(ctx) {
		if err != nil {
			return err
		}
		key, value := string(pair.Key), history.Value(string(pair.Value))
		want, ok := acknowledged[key]
		if ok {
			found++
		} else if want, ok = unknown[key]; !ok {
			wrong.add(fmt.Errorf("%s holds %v, and no such write was acknowledged",
				key, abbreviate(value)))
			continue
		}
		if value != history.Value(want) {
			wrong.add(fmt.Errorf("%s holds %v, and %q was written", key, abbreviate(value), want))
		}
	}
	if found < len(acknowledged) {
		wrong.add(fmt.Errorf("%d of %d rows are there", found, len(acknowledged)))
	}
	return wrong.err()
}
