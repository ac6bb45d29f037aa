package faults

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	stormFor = flag.Duration("faults.storm", time.Minute, "how long TestSplitStorm goes on")
	stormGap = flag.Duration("faults.storm-gap", 100*time.Millisecond,
		"the time between the beginnings of two splits or merges of TestSplitStorm")
)

// stormLoads are the workloads under splits, in range keyspaces.
var stormLoads = []string{"ranged-bank", "ranged-dependencies"}

// stormSites are the places where partitions split: beside accounts, and beside lists.
var stormSites = []site{
	{keyspace: "ranged-bank", before: "account00/"},
	{keyspace: "ranged-bank", before: "account02/", rises: true},
	{keyspace: "ranged-dependencies", before: "dependency02/~"},
	{keyspace: "ranged-dependencies", before: "dependency03~", rises: true},
}

// TestSplitStorm splits or merges a partition ten times a second, always one in which money is
// transferred or lists are appended to. No transaction fails, and the checks of both workloads find
// no violation.
func TestSplitStorm(t *testing.T) {
	e := newEnvironment(t, *stormFor+10*time.Minute, threeServers())
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	loads, err := workloads.Choose(stormLoads...)
	e.must(err, "choose workloads")
	p, err := startProof(e.ctx, e.cluster, loads)
	e.must(err, "start the workloads")
	defer p.stop()
	for _, name := range stormLoads {
		err := client.AlterKeyspace(e.ctx, name, kv.AutoSplit(false))
		e.must(err, "alter keyspace %s", name)
	}
	splitting, cancel := context.WithTimeout(e.ctx, *stormFor)
	defer cancel()
	s := &storm{client: client, sites: stormSites, every: *stormGap}
	s.run(splitting)
	done, retries := p.Transactions()
	err = p.judge(e.ctx)
	if len(s.splits) == 0 || len(s.merges) == 0 {
		e.Errorf("nothing has split, or nothing has merged: %v", s.reason)
	}
	partitions := 0
	for _, name := range stormLoads {
		e.wait(time.Minute, "every key belongs to one partition, and the partitions count right",
			func(ctx context.Context) error {
				n, err := everyKeyOnce(ctx, client, name)
				partitions += n
				return err
			})
	}
	e.result("%d splits and merges in %v, %.1f a second; %s; %d partitions at the end; %d "+
		"transactions, %d attempts more", s.done.Load(), *stormFor,
		float64(s.done.Load())/stormFor.Seconds(), s.report(), partitions, done, retries)
	for _, row := range p.Rows() {
		e.Logf("%+v", row)
	}
	if err != nil {
		e.Errorf("what the clients were told cannot be, or failed:\n%v", err)
	}
}
