package faults

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var (
	splitTimes = flag.Int("faults.splits", 60, "how often TestSplits splits a partition")
	splitPause = flag.Duration("faults.split-pause", 50*time.Millisecond,
		"the longest pause of a partition that TestSplits accepts: the median over the splits")
	longestSplit = flag.Duration("faults.split-longest", 200*time.Millisecond,
		"the longest pause of any split that TestSplits accepts")
)

// sameNumber returns a key with a prefix in the same hash partition as another key.
func sameNumber(prefix, like string) string {
	number := keys.HashPartition([]byte(like), hash)
	for i := 0; ; i++ {
		if k := fmt.Sprintf("%s-%d", prefix, i); keys.HashPartition([]byte(k), hash) == number {
			return k
		}
	}
}

// TestSplits splits the partitions of three servers under load, to the left and to the right of a
// key that is written and read all the time. No client sees an error, every acknowledged write is
// there, and the pauses of the key are no longer than a split may take.
func TestSplits(t *testing.T) {
	e := newEnvironment(t, 12*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start(keyspace, hash, 3)
	load := steadyLoad(e.open(keyspace))
	load.Start(e.ctx)
	defer load.Stop()
	writes, reads := NewProbe(e.open(keyspace), hash, probeEvery), NewProbe(e.open(keyspace), hash,
		probeEvery)
	reads.Read = true
	for _, probe := range []*Probe{writes, reads} {
		e.must(probe.Start(e.ctx), "first operations")
		defer probe.Stop()
	}
	client := e.open(keyspace).client
	var left, right, noise []time.Duration
	for i := range *splitTimes {
		number := i % hash
		probe := writes.keys[number]
		// Splits come closer and closer to the key, from the left and from the right.
		at, into := sameNumber(fmt.Sprintf("m%06d", i), probe), &right
		if i/hash%2 == 1 {
			at, into = sameNumber(fmt.Sprintf("q%06d", 999999-i), probe), &left
		}
		e.pass(300 * time.Millisecond)
		still, _ := longest(append(writes.Pauses(), reads.Pauses()...), nil)
		noise = append(noise, still)
		writes.Reset()
		reads.Reset()
		split, err := admin.New(client).SplitPartition(e.ctx, keyspace, []byte(at))
		e.must(err, "split at %s", at)
		e.wait(20*time.Second, fmt.Sprintf("the split at %s is done", at),
			func(ctx context.Context) error {
				all, err := admin.New(client).Partitions(ctx, keyspace)
				for _, p := range all {
					if p.ID == split.Child && p.Leader != 0 {
						return err
					}
				}
				return fmt.Errorf("partition %d is not led", split.Child)
			})
		e.pass(100 * time.Millisecond)
		pause := max(writes.Pauses()[number], reads.Pauses()[number])
		*into = append(*into, pause)
		writes.Reset()
		reads.Reset()
	}
	writes.Stop()
	reads.Stop()
	middle := func(all []time.Duration) (median, most time.Duration) {
		if len(all) == 0 {
			return 0, 0
		}
		slices.Sort(all)
		return all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond)
	}
	quiet, quietMost := middle(noise)
	l, lMost := middle(left)
	r, rMost := middle(right)
	e.result("%d splits: pause of what stays: median %v, longest %v; of what splits off: median %v, "+
		"longest %v; of any partition between splits: median %v, longest %v", *splitTimes, l, lMost, r,
		rMost, quiet, quietMost)
	if quiet < *splitPause/2 && max(l, r) > *splitPause {
		e.Errorf("a split pauses a partition for %v, allowed are %v", max(l, r), *splitPause)
	}
	if quietMost < *longestSplit/2 && max(lMost, rMost) > *longestSplit {
		e.Errorf("a split pauses a partition for %v, allowed are %v", max(lMost, rMost), *longestSplit)
	}
	for _, probe := range []*Probe{writes, reads} {
		if n, err := probe.Failures(); n > 0 {
			e.Errorf("%d operations of a probe failed, the last with: %v", n, err)
		}
	}
	load.Stop()
	if n := load.failed.Load(); n > 0 {
		e.Errorf("%d operations failed: %s", n, load.Summary())
	}
	e.check(load)
}
