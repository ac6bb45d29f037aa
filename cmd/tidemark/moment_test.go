package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// behind is a clock that shows another time than this machine's.
type behind time.Duration

func (b behind) Now() int64 { return time.Now().Add(-time.Duration(b)).UnixNano() }

// A time ago is measured from the cluster's clock: this machine's, which is an hour ahead of it
// here, would read and follow what the cluster takes for the future.
func TestTimesAgoAreThoseOfTheCluster(t *testing.T) {
	cluster, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{
		Dir: t.TempDir(), Nodes: 1, Cores: 1, Listen: "127.0.0.1:0",
		Configure: func(_ int, c *embedded.ServerConfig) { c.Physical = behind(time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	b := shared{t, map[string]string{endpointsEnv: cluster.Endpoints()[0]}}
	b.ok("keyspace", "create", "past", "--partitions", "hash:1", "--replicas", "1")
	b.ok("put", "past", "a", "1")
	for _, args := range []string{"get past a --at -0s -o raw", "count past --at -0s -o raw",
		"scan past --at -0s -o raw", "dump past --at -0s"} {
		if got := b.ok(strings.Fields(args)...); !strings.Contains(got, "1") {
			t.Errorf("%s: %q", args, got)
		}
	}
	if got := b.run("at -0s\nget past a\n", exit.OK, "txn", "-o", "raw"); got.out != "1\n" {
		t.Errorf("txn: %q", got.out)
	}
	if got := b.ok("changes", "past", "--since", "-1m", "--until", "-0s"); !strings.Contains(got,
		"put") {
		t.Errorf("changes: %q", got)
	}
	// What expires by the cluster's clock in half an hour has not expired.
	record := "b\t2\t" + time.Now().Add(-30*time.Minute).UTC().Format(time.RFC3339) + "\n"
	for _, how := range [][]string{nil, {"--presplit"}} {
		got := b.run(record, exit.OK, append([]string{"load", "past"}, how...)...)
		if strings.Contains(got.out+got.err, "expired") {
			t.Errorf("load %q: %s%s", how, got.out, got.err)
		}
	}
	if got := b.ok("get", "past", "b", "-o", "raw"); got != "2" {
		t.Error(errors.New(got))
	}
}
