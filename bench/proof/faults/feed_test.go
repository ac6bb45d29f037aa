package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	feedRate = flag.Float64("faults.feed-rate", 10_000,
		"how many writes a second TestFeedLag makes")
	feedFor     = flag.Duration("faults.feed-for", time.Minute, "for how long TestFeedLag measures")
	feedClients = flag.Int("faults.feed-clients", 128,
		"how many goroutines write for the tests of feeds")
	feedBatch = flag.Int("faults.feed-batch", 1,
		"how many puts to one partition TestFeedLag writes together")
	feedKills = flag.Int("faults.feed-kills", 6,
		"how many processes TestFeedKills kills, each of three in turn")
	feedKillRate = flag.Float64("faults.feed-kill-rate", 1000,
		"how many writes a second go on in TestFeedKills")
	feedPause = flag.Duration("faults.feed-pause", 10*time.Minute,
		"for how long the consumer of TestFeedPause stands still")
	feedPauseRate = flag.Float64("faults.feed-pause-rate", 500,
		"how many writes a second go on meanwhile")
)

const (
	feedPartitions = 64
	feedLag        = time.Second            // the closed lag of the keyspaces, the default
	feedBeyond     = 200 * time.Millisecond // how much the median lag of changes may exceed feedLag
	feedWarm       = 5 * time.Second
	// feedWindow is how long history is kept in TestFeedPause without the consumer.
	feedWindow = 5 * time.Second
)

// feedCluster starts three servers with a keyspace of 64 partitions.
func feedCluster(t *testing.T, limit time.Duration, name string,
	options ...kv.KeyspaceOption) (*environment, *kv.Client) {
	t.Helper()
	e := newEnvironment(t, limit, fleet.Layout{Nodes: 3, Configure: func(_ int, s *fleet.Server) {
		s.Roles, s.Flags = "core,node", []string{"--gc-interval", "2s"}
	}})
	shareCore(e.cluster)
	e.start("unused", 1, 3)
	client := e.open("unused").client
	_, err := client.CreateKeyspace(e.ctx, name, append(options, kv.Hash(feedPartitions),
		kv.AutoSplit(false), kv.ClosedLag(feedLag))...)
	e.must(err, "create keyspace %s", name)
	return e, client
}

// followed starts a follower of a feed with its own client. finish waits until the follower has all
// acknowledged writes, and ends it.
func (e *environment) followed(name string) (f *feedFollower, ledger *feedLedger, finish func()) {
	e.Helper()
	ledger = newFeedLedger()
	f = newFeedFollower(e.open(name).keyspace, ledger)
	ended := make(chan error, 1)
	go func() { ended <- f.follow(e.ctx) }()
	e.must(e.feedBegins(f, ended), "begin the feed")
	return f, ledger, func() {
		e.Helper()
		until := ledger.highest()
		f.until.Store(&until)
		e.must(<-ended, "follow the changes")
	}
}

// feedBegins waits for the first progress.
func (e *environment) feedBegins(f *feedFollower, ended <-chan error) error {
	select {
	case <-f.began:
		return nil
	case err := <-ended:
		return errors.Join(errors.New("it ended before its first progress"), err)
	case <-time.After(time.Minute):
		return errors.New("no progress came within a minute")
	}
}

// lagText describes lags.
func lagText(h *hdrhistogram.Histogram) string {
	at := func(q float64) time.Duration {
		return (time.Duration(h.ValueAtQuantile(q)) * time.Microsecond).Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("lag of %d changes: median %v, 99%% within %v, 99.9%% within %v, longest %v",
		h.TotalCount(), at(50), at(99), at(99.9), at(100))
}

// TestFeedLag writes many keys, and measures how far the changes in a feed are behind the clock.
// The median may exceed the closed lag only a little. No change is missing or out of order.
func TestFeedLag(t *testing.T) {
	e, client := feedCluster(t, 15*time.Minute+*feedFor, "fed")
	f, ledger, finish := e.followed("fed")
	ks := client.Keyspace("fed")
	writers := &feedWriters{keyspace: ks, ledger: ledger, writers: *feedClients, batch: *feedBatch,
		rate: *feedRate, keys: e.feedKeys(ks, 100_000, *feedBatch)}
	stop := writers.start(e.ctx)
	defer stop()
	e.pass(min(feedWarm, *feedFor))
	acked, used, began := ledger.count(), e.processorTime(), time.Now()
	f.measure()
	e.pass(*feedFor)
	lags, behind := f.measure()
	took := time.Since(began)
	carried := float64(ledger.count()-acked) / took.Seconds()
	used = e.processorTime() - used
	stop()
	finish()
	e.result("%.0f of %.0f writes a second, %d together, into %d partitions for %v by %d clients; "+
		"servers: %.2f processors", carried, *feedRate, *feedBatch, feedPartitions,
		took.Round(time.Second), *feedClients, used.Seconds()/took.Seconds())
	e.result("%s; progress was at most %v behind", lagText(lags), behind.Round(time.Millisecond))
	f.judge(e)
	if carried < 0.95**feedRate {
		e.Errorf("the machine carries %.0f writes a second of %.0f: give -faults.feed-clients, "+
			"-faults.feed-batch, or a lower -faults.feed-rate", carried, *feedRate)
	}
	median := time.Duration(lags.ValueAtQuantile(50)) * time.Microsecond
	if median > feedLag+feedBeyond {
		e.Errorf("the median lag is %v, and should be at most %v", median, feedLag+feedBeyond)
	}
}

// TestFeedKills kills each server in turn with kill -9 while a feed follows the writes. The feed
// delivers every acknowledged write, in order for each key.
func TestFeedKills(t *testing.T) {
	e, client := feedCluster(t, 15*time.Minute+time.Duration(*feedKills)*time.Minute, "fed")
	f, ledger, finish := e.followed("fed")
	ks := client.Keyspace("fed")
	writers := &feedWriters{keyspace: ks, ledger: ledger, writers: *feedClients, batch: 1, deletes: 4,
		rate: *feedKillRate, keys: e.feedKeys(ks, 20_000, 1)}
	stop := writers.start(e.ctx)
	defer stop()
	e.pass(feedWarm)
	for round := range *feedKills {
		victim := e.cluster.Nodes[round%len(e.cluster.Nodes)]
		acked := ledger.count()
		f.measure()
		e.must(victim.Kill(), "kill %s", victim.Name)
		killed := kv.TimestampOf(time.Now())
		e.pass(3 * time.Second)
		back := e.restart(victim)
		e.wait(2*time.Minute, "the feed has passed the kill", func(ctx context.Context) error {
			if at := f.at(); at.LessEq(killed) {
				return fmt.Errorf("it is at %s", at)
			}
			return nil
		})
		e.pass(5 * time.Second)
		lags, behind := f.measure()
		e.result("round %d: killed %s, ready again %v after its restart; %d writes acknowledged "+
			"meanwhile; %s; progress was at most %v behind", round+1, victim.Name,
			back.Round(time.Millisecond), ledger.count()-acked, lagText(lags),
			behind.Round(time.Millisecond))
	}
	stop()
	finish()
	f.judge(e)
}

// TestFeedPause pauses a named consumer for far longer than the keyspace keeps history, while keys
// are overwritten and deleted. When the consumer continues, it gets all changes. A feed of a
// keyspace without a consumer reports that history is gone, so the consumer has protected the
// history.
func TestFeedPause(t *testing.T) {
	if *feedPause < 3*feedWindow {
		t.Fatalf("-faults.feed-pause %v is too short: history is kept for %v", *feedPause, feedWindow)
	}
	e, client := feedCluster(t, 20*time.Minute+*feedPause, "stood", kv.GCWindow(feedWindow))
	_, err := client.CreateKeyspace(e.ctx, "unheld", kv.Hash(4), kv.GCWindow(feedWindow),
		kv.AutoSplit(false))
	e.must(err, "create the keyspace without a consumer")
	ledger := newFeedLedger()
	f := newFeedFollower(e.open("stood").keyspace, ledger)
	// goOn lets the consumer continue up to until, and pauses it there.
	goOn := func(until kv.Timestamp) (came int, took time.Duration) {
		e.Helper()
		before, began := f.told(), time.Now()
		f.until.Store(&until)
		e.must(f.follow(e.ctx, kv.Consumer("stands")), "follow the changes as a consumer")
		came, took = f.told()-before, time.Since(began)
		info, err := f.keyspace.SetConsumer(e.ctx, "stands", f.at())
		e.must(err, "record the position")
		if info.Position != f.at() {
			e.Errorf("the position is %s after it was set to %s", info.Position, f.at())
		}
		return came, took
	}
	goOn(kv.Timestamp{}) // the consumer starts here
	ks, unheld := client.Keyspace("stood"), client.Keyspace("unheld")
	writers := &feedWriters{keyspace: ks, ledger: ledger, writers: *feedClients, batch: 1, deletes: 4,
		rate: *feedPauseRate, keys: e.feedKeys(ks, 5_000, 1)}
	stop := writers.start(e.ctx)
	defer stop()
	others := &feedWriters{keyspace: unheld, ledger: newFeedLedger(), writers: 2, batch: 1,
		deletes: 4, rate: 50, keys: e.feedKeys(unheld, 100, 1)}
	stopOthers := others.start(e.ctx)
	defer stopOthers()
	e.pass(feedWarm)
	goOn(ledger.highest())
	position, stands, collected := f.at(), ledger.count(), e.collected()
	e.pass(*feedPause)
	waiting := ledger.count() - stands
	came, took := goOn(kv.TimestampOf(time.Now()))
	e.result("the consumer stood still for %v, and history is kept for %v; %d writes were "+
		"acknowledged meanwhile; %d changes came within %v until it had caught up; %.0f old versions "+
		"of both keyspaces were collected meanwhile", *feedPause, feedWindow, waiting, came,
		took.Round(time.Millisecond), e.collected()-collected)
	if came < waiting {
		e.Errorf("%d changes came, and %d writes were acknowledged", came, waiting)
	}
	if err := f.same(e.ctx); err != nil {
		e.Errorf("when it had caught up: %v", err)
	}
	stop()
	stopOthers()
	goOn(ledger.highest())
	f.judge(e)
	for _, err := range unheld.Changes(e.ctx, kv.Since(position)) {
		if !errors.Is(err, kv.ErrTimestampTooOld) {
			e.Errorf("a feed of the keyspace without a consumer, since %s, should be too old: %v",
				position, err)
		}
		break
	}
}

// collected returns the number of old versions that garbage collection has removed.
func (e *environment) collected() (sum float64) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		n, err := metricSum(e.ctx, s, "tidemark_node_gc_versions_total", "")
		e.must(err, "metrics of %s", s.Name)
		sum += n
	}
	return sum
}

// processorTime returns the processor time of the servers' present processes together.
func (e *environment) processorTime() (sum time.Duration) {
	e.Helper()
	for _, s := range e.cluster.All() {
		usage, err := s.Process().Usage()
		e.must(err, "processor time of %s", s.Name)
		sum += time.Duration(usage.CPUSeconds() * float64(time.Second))
	}
	return sum
}
