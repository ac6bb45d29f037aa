package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// watched is a cluster in virtual time of which status is asked.
type watched struct {
	*kvtest.Cluster
	t      *testing.T
	client *kv.Client
	// registries are those of the servers, each since its last start.
	registries map[int]*prometheus.Registry
}

func watch(t *testing.T, o kvtest.Options) *watched {
	w := &watched{t: t, registries: map[int]*prometheus.Registry{}}
	var mu sync.Mutex
	o.Latency = 200 * time.Microsecond
	o.Configure = func(server int, c *embedded.ServerConfig) {
		mu.Lock()
		defer mu.Unlock()
		w.registries[server] = prometheus.NewRegistry()
		c.Registry = w.registries[server]
	}
	w.Cluster = kvtest.Start(t, o)
	w.client = w.Client(t)
	return w
}

// status is what the command prints, and its exit code.
func (w *watched) status(format output.Format) (text string, code int) {
	w.t.Helper()
	var out strings.Builder
	a := &app{streams: streams{out: &out, err: io.Discard}, format: format}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	err := a.status(ctx, w.client, exit.Degraded)
	var coded *exit.Error
	switch {
	case err == nil:
	case errors.As(err, &coded):
		code = coded.Code
	default:
		code = exit.Failed
	}
	return out.String(), code
}

// await waits, in virtual time, until status says all of the words and ends with the code.
func (w *watched) await(what string, code int, words ...string) {
	w.t.Helper()
	var text string
	got := 0
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(500 * time.Millisecond) {
		text, got = w.status(output.Table)
		missing := got != code
		for _, word := range words {
			missing = missing || !strings.Contains(text, word)
		}
		if !missing {
			return
		}
	}
	w.t.Fatalf("%s: status says, with exit code %d, want %d and %q:\n%s", what, got, code, words,
		text)
}

// named waits, in virtual time, until the lists of the JSON output that have something in them are
// those of the keys. A follower whose new leader has not heard it yet counts as behind for a
// moment.
func (w *watched) named(what string, keys ...string) {
	w.t.Helper()
	var text string
	var wrong []string
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(500 * time.Millisecond) {
		text, _ = w.status(output.JSON)
		var row map[string]any
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			w.t.Fatalf("%s: %v in %s", what, err, text)
		}
		wrong = nil
		for _, key := range []string{"unavailable", "under_replicated", "full", "unhealthy",
			"core_at_risk", "cut_off"} {
			list, is := row[key].([]any)
			if !is || slices.Contains(keys, key) != (len(list) > 0) {
				wrong = append(wrong, key)
			}
		}
		if len(wrong) == 0 {
			return
		}
	}
	w.t.Errorf("%s: the lists are not those of %v: %v, in %s", what, keys, wrong, text)
}

// ready wants each server that runs to be ready, but these.
func (w *watched) ready(what string, but ...int) {
	w.t.Helper()
	for i := range w.Servers() {
		p := w.Process(i)
		if p == nil {
			continue
		}
		want := true
		for _, x := range but {
			want = want && x != i
		}
		if ready, why := p.Ready(); ready != want {
			w.t.Errorf("%s: server %d is ready: %v (%s)", what, i, ready, why)
		}
	}
}

// metric is the sum of a metric over all servers.
func (w *watched) metric(name string) (sum float64) {
	w.t.Helper()
	for i := range w.Servers() {
		p := w.Process(i)
		if p == nil {
			continue
		}
		families, err := w.registries[i].Gather()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == name {
					sum += m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// Whatever fails of a cluster is named by status, whose exit code is then not 0, and is not named
// any more when it is mended. A server is unready only for what fails of itself.
func TestStatusNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Seed: 1})
		c := w.Cluster
		if _, err := w.client.CreateKeyspace(t.Context(), "k", kv.Hash(6)); err != nil {
			t.Fatal(err)
		}
		well := func(what string) {
			t.Helper()
			w.await(what, exit.OK)
			w.named(what)
			w.ready(what)
		}
		well("at first")
		restart := func(server int) {
			t.Helper()
			if err := c.Run(server); err != nil {
				t.Fatal(err)
			}
		}
		member := func(server int) string {
			return fmt.Sprintf("member %d (%s)", server+1, c.Endpoints()[server])
		}

		for server := range 3 {
			what := fmt.Sprintf("core server %d is killed", server)
			c.Kill(server, 0)
			w.await(what, exit.Degraded, "core at risk: "+member(server)+" does not answer",
				"2 of 3 voters of the core answer: there is no quorum if one more fails",
				"2 of 3 voters of the coordination store answer")
			w.named(what, "core_at_risk")
			w.ready(what)
			if n := w.metric("tidemark_core_members_silent"); n != 1 {
				t.Errorf("%s: the metric of silent members is %v", what, n)
			}
			restart(server)
			well("core server " + fmt.Sprint(server) + " is back")
		}

		for server := 3; server < 6; server++ {
			what := fmt.Sprintf("node server %d is killed", server)
			c.Kill(server, 0)
			w.await(what, exit.Degraded, "under replicated: node", "is down: 6 replicas")
			w.named(what, "under_replicated")
			w.ready(what)
			restart(server)
			well("node server " + fmt.Sprint(server) + " is back")
		}

		what := "two nodes do not reach each other"
		c.Cut(3, 4, memnet.Stall)
		c.Cut(4, 3, memnet.Stall)
		w.await(what, exit.Degraded, "cut off: node", "do not hear each other")
		w.named(what, "cut_off")
		w.ready(what)
		if n := w.metric("tidemark_placement_links_silent"); n != 2 {
			t.Errorf("%s: the metric of links is %v", what, n)
		}
		c.HealAll()
		well("the link between two nodes is back")

		var followers []int
		for i := range 3 {
			if !c.Process(i).LeadsCore() {
				followers = append(followers, i)
			}
		}
		what = "two members of the core do not reach each other"
		c.Cut(followers[0], followers[1], memnet.Stall)
		c.Cut(followers[1], followers[0], memnet.Stall)
		w.await(what, exit.Degraded, "cut off: core "+member(followers[0])+" and "+
			member(followers[1])+" do not hear each other")
		w.ready(what)
		c.HealAll()
		well("the link between two members is back")

		what = "a node's disk is full"
		c.Disk(5).SetFull(true)
		w.await(what, exit.Degraded, "full: node")
		w.ready(what, 5)
		c.Disk(5).SetFull(false)
		well("a node's disk has room again")

		for i := range c.Servers() {
			c.Disk(i).SetSyncTimes(time.Millisecond, time.Millisecond)
		}
		what = "the disk of a member of the core is slow"
		// Without writes it is not known how long a write takes.
		var writes sync.WaitGroup
		written := make(chan struct{})
		writes.Go(func() {
			for pause := true; ; pause = !pause {
				select {
				case <-written:
					return
				case <-time.After(time.Second):
					_, _ = admin.New(w.client).PausePlacement(t.Context(), pause)
				}
			}
		})
		c.Disk(1).SetSyncTimes(50*time.Millisecond, 50*time.Millisecond)
		w.await(what, exit.Degraded, "unhealthy: core "+member(1)+": its disk is slow")
		w.ready(what)
		c.Disk(1).SetSyncTimes(time.Millisecond, time.Millisecond)
		well("the disk of the member is as fast as others")

		what = "the disk of a member of the core stands still"
		c.Disk(1).SetStalled(true)
		w.await(what, exit.Degraded, "unhealthy: core "+member(1)+": its disk stands still")
		c.Disk(1).SetStalled(false)
		well("the disk of the member writes again")
		close(written)
		writes.Wait()

		what = "a node's clock is wrong"
		c.Clock(4).Jump(time.Minute)
		w.await(what, exit.Degraded, "unhealthy: node", "clock is wrong")
		w.ready(what, 4)
		c.Clock(4).Jump(-time.Minute)
		well("a node's clock is right again")

		what = "a member of the core has lost its directory"
		c.Kill(2, 0)
		if err := c.Wipe(2); err != nil {
			t.Fatal(err)
		}
		w.await(what, exit.Degraded, "core at risk: "+member(2)+" does not answer")
		time.Sleep(10 * time.Second) // virtual: its server runs, and offers itself
		w.await(what, exit.Degraded, "core at risk: "+member(2)+" does not answer")
		w.ready(what, 2)
	})
}

// A server that comes back is not well before its replicas have caught up: a procedure that waits
// for status may stop the next server then.
func TestStatusWaitsForReplicasThatCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, kvtest.Options{Nodes: 3, Cores: 3, Seed: 2})
		c := w.Cluster
		if _, err := w.client.CreateKeyspace(t.Context(), "k", kv.Hash(2)); err != nil {
			t.Fatal(err)
		}
		w.await("at first", exit.OK)
		for server := range 3 {
			c.Kill(server, 0)
			ks := w.client.Keyspace("k")
			for i := range 400 {
				if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "key %d", i),
					make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			// What the others send to it takes its time.
			for other := range 3 {
				if other != server {
					c.Cut(other, server, memnet.Stall)
				}
			}
			if err := c.Run(server); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second) // virtual
			if text, code := w.status(output.Table); code == exit.OK {
				t.Fatalf("server %d lacks what was written while it was down, and all is well:\n%s",
					server, text)
			}
			c.HealAll()
			w.await("server is back", exit.OK)
			applied := map[uint64]uint64{}
			for i := range 3 {
				for _, r := range c.Process(i).Replicas() {
					applied[r.Partition] = max(applied[r.Partition], r.Applied)
				}
			}
			for _, r := range c.Process(server).Replicas() {
				if r.Applied+health.NearlyAll < applied[r.Partition] {
					t.Errorf("all is well, and the replica of partition %d on server %d has applied %d of %d",
						r.Partition, server, r.Applied, applied[r.Partition])
				}
			}
		}
	})
}
