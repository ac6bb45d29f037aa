package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

const (
	keyspace   = "faults"
	hash       = 8
	probeEvery = 10 * time.Millisecond
)

func sixProcesses() fleet.Layout { return fleet.Layout{Cores: 3, Nodes: 3} }

// steadyLoad is 16 clients that together do about 700 operations a second on 64 keys and 8
// counters.
func steadyLoad(store *Store) *Load {
	return &Load{
		Store: store, Recorder: history.NewRecorder(), Keys: 64, Counters: 8,
		Clients: 16, Interval: 20 * time.Millisecond, Timeout: 20 * time.Second,
	}
}

// check ends the load, and checks its history.
func (e *environment) check(load *Load) {
	e.Helper()
	load.Stop()
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	report, err := load.Check(ctx)
	e.result("%v; %s", report, load.Summary())
	if err != nil {
		e.Errorf("what the clients were told cannot be:\n%v", err)
		for i, f := range report.Failures {
			path := fmt.Sprintf("%s/history-%d.html", e.dir, i)
			if err := f.WriteHTML(path); err != nil {
				e.Error(err)
			}
		}
	}
}

// TestKillOne kills one process after the other, under load. No acknowledged write is lost or
// applied twice, and no partition pauses for longer than it may.
func TestKillOne(t *testing.T) {
	e := newEnvironment(t, 2*time.Minute+time.Duration(*rounds)*45*time.Second, sixProcesses())
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	load := steadyLoad(store)
	load.Start(e.ctx)
	defer load.Stop()
	probe := NewProbe(e.open(keyspace), hash, probeEvery)
	e.must(probe.Start(e.ctx), "first writes")
	defer probe.Stop()

	random := rand.New(rand.NewPCG(1, 1))
	servers := e.cluster.All()
	order := random.Perm(len(servers))
	var worst time.Duration
	judged := 0
	for round := range *rounds {
		victim := servers[order[round%len(order)]]
		leading := e.ledBy(victim)
		probe.Reset()
		e.must(victim.Kill(), "kill %s", victim.Name)
		killed := time.Now()
		// The time is long enough for elections and for the core to notice, and short enough that
		// no replica is rebuilt elsewhere.
		e.pass(time.Duration(3000+random.IntN(2000)) * time.Millisecond)
		afterKill := probe.Pauses()
		back := e.restart(victim)
		e.wait(20*time.Second, "every partition answers after the restart",
			func(context.Context) error { return probe.AllAnswered(killed.Add(3 * time.Second)) })
		e.pass(2 * time.Second)
		pauses := probe.Pauses()
		concerned, others := longest(pauses, leading)
		atReturn, _ := longest(pauses, nil)
		beforeReturn, _ := longest(afterKill, nil)
		note := ""
		if atReturn > beforeReturn {
			note = fmt.Sprintf(", of which %v when it came back", atReturn.Round(time.Millisecond))
		}
		if still := probe.Still(); still > 500*time.Millisecond {
			note += fmt.Sprintf("; not judged: the machine had no time for this test itself for %v",
				still.Round(time.Millisecond))
		} else {
			worst = max(worst, concerned, others)
			judged++
		}
		e.result("round %d: killed %s, which led %d of %d partitions: longest pause %v of "+
			"those, %v of the others%s; ready again %v after its restart",
			round+1, victim.Name, len(leading), hash, concerned.Round(time.Millisecond),
			others.Round(time.Millisecond), note, back.Round(time.Millisecond))
	}
	probe.Stop()
	e.result("longest pause of any partition in %d rounds: %v, allowed %v", judged,
		worst.Round(time.Millisecond), *maxPause)
	if judged == 0 {
		e.Error("no round could be judged: the machine is too busy")
	}
	if worst > *maxPause {
		e.Errorf("a partition paused for %v, allowed are %v", worst.Round(time.Millisecond),
			*maxPause)
	}
	e.check(load)
}

// ledBy returns the hash numbers of the partitions that a server leads.
func (e *environment) ledBy(s *fleet.Server) map[int]bool {
	e.Helper()
	servers, err := e.admin.NodeOf(e.ctx)
	e.must(err, "nodes")
	infos, err := e.admin.Partitions(e.ctx, keyspace)
	e.must(err, "partitions")
	led := make(map[int]bool)
	for _, info := range infos {
		if servers[info.LeaderNode] == s {
			led[int(info.Partition.Hash)] = true
		}
	}
	return led
}

// longest returns the longest pause of the partitions in the set, and of the other partitions. A
// nil set has all partitions.
func longest(pauses []time.Duration, set map[int]bool) (inside, outside time.Duration) {
	for hash, pause := range pauses {
		if set == nil || set[hash] {
			inside = max(inside, pause)
		} else {
			outside = max(outside, pause)
		}
	}
	return inside, outside
}

// TestKillAll kills all processes at once, under load, and restarts them. Every acknowledged write
// is there.
func TestKillAll(t *testing.T) {
	e := newEnvironment(t, time.Minute+time.Duration(*rounds)*15*time.Second, sixProcesses())
	e.start(keyspace, hash, 3)
	store := e.open(keyspace)
	load := steadyLoad(store)
	load.Start(e.ctx)
	defer load.Stop()
	acknowledged := 0
	for round := range max(*rounds/4, 1) {
		stop := e.writeMany(store, fmt.Sprintf("round-%d", round))
		e.pass(4 * time.Second)
		e.must(e.cluster.KillAll(), "kill everything")
		written := stop()
		begin := time.Now()
		for _, s := range e.cluster.All() {
			e.must(s.Start(), "start %s again", s.Name)
		}
		ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
		e.must(e.cluster.WaitReady(ctx), "restart")
		cancel()
		ready := time.Since(begin)
		e.mustHave(store, written)
		acknowledged += len(written)
		e.result("round %d: %d servers killed at once, all ready %v after the restart; %d "+
			"acknowledged writes all there (read by %v)",
			round+1, len(e.cluster.All()), ready.Round(time.Millisecond), len(written),
			time.Since(begin).Round(time.Millisecond))
	}
	e.result("%d acknowledged writes survived", acknowledged)
	e.check(load)
}

// writeMany writes keys that no other client writes, from many goroutines, until stop is called.
// stop returns the acknowledged keys with their values. Writes that are under way at that time may
// be there or not.
func (e *environment) writeMany(store *Store, prefix string) (stop func() map[string]string) {
	const writers = 32
	ctx, cancel := context.WithCancel(e.ctx)
	type pair struct{ key, value string }
	results := make(chan []pair, writers)
	for writer := range writers {
		go func() {
			var acknowledged []pair
			defer func() { results <- acknowledged }()
			for n := 0; ctx.Err() == nil; n++ {
				p := pair{fmt.Sprintf("%s-%02d-%08d", prefix, writer, n),
					fmt.Sprintf("value %d of writer %d", n, writer)}
				if err := store.Put(ctx, p.key, p.value); err == nil {
					acknowledged = append(acknowledged, p)
				}
			}
		}()
	}
	return func() map[string]string {
		cancel()
		all := make(map[string]string)
		for range writers {
			for _, p := range <-results {
				all[p.key] = p.value
			}
		}
		return all
	}
}

// mustHave reads every key and compares its value.
func (e *environment) mustHave(store *Store, want map[string]string) {
	e.Helper()
	e.must(everyKey(e.ctx, store, want), "read what was acknowledged")
}
