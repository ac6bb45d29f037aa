package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
)

// Consumers are listed, for people and for programs, and deleted; what cannot be is refused with
// the exit code that says why.
func TestConsumersCommand(t *testing.T) {
	b := cluster(t)
	for _, keyspace := range []string{"fed", "fed2"} {
		b.ok("keyspace", "create", keyspace, "--partitions", "hash:1")
		defer b.ok("keyspace", "drop", keyspace, "--yes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kv.Open(ctx, strings.Split(b.environment[endpointsEnv], ","))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	position := hlc.FromTime(time.Now().Add(-time.Hour))
	for keyspace, name := range map[string]string{"fed": "search index", "fed2": "mirror"} {
		if _, err := client.Keyspace(keyspace).SetConsumer(ctx, name, position,
			kv.KeepHistory(2*time.Hour), kv.From([]byte(keyspace))); err != nil {
			t.Fatal(err)
		}
	}
	type row struct {
		Keyspace, Name, Position, State string
		Lag, Keep                       float64
		Created, Updated                time.Time
		From, To                        *string
	}
	all := listed[row](b, "consumers")
	if len(all) != 2 || all[0].Keyspace != "fed" || all[1].Keyspace != "fed2" {
		t.Fatalf("%+v", all)
	}
	one := listed[row](b, "consumers", "fed")
	if len(one) != 1 {
		t.Fatalf("%+v", one)
	}
	if r := one[0]; r.Name != "search index" || r.Position != position.String() ||
		r.State != "kept" ||
		r.Keep != 7200 || r.Lag < 3600 || r.Lag > 3660 || time.Since(r.Updated) > time.Minute ||
		r.Created.IsZero() || r.From == nil || *r.From != "fed" || r.To != nil {
		t.Errorf("%+v", r)
	}
	for line := range strings.Lines(b.walk(100, exit.OK, "", "consumers")) {
		if w := text.StringWidth(strings.TrimSuffix(line, "\n")); w > 100 {
			t.Errorf("%d columns: %s", w, line)
		}
	}
	b.want(`{"keyspace":"fed","name":"search index","deleted":true}`+"\n",
		"consumers", "delete", "fed", "search index", "-o", "json")
	b.fails(exit.NotFound, "no consumer", "consumers", "delete", "fed", "search index")
	b.fails(exit.NotFound, "no keyspace", "consumers", "delete", "nowhere", "x")
	b.fails(exit.NotFound, "no keyspace", "consumers", "nowhere")
	b.fails(exit.Usage, "needs a name", "consumers", "delete", "fed", "")
	b.fails(exit.Usage, "has no name", "consumers", "")
	b.fails(exit.Usage, "KEYSPACE and NAME", "consumers", "delete", "fed")
	b.fails(exit.Usage, "one KEYSPACE", "consumers", "fed", "x")
	if got := b.ok("consumers", "delete", "fed2", "mirror"); got != "" {
		t.Errorf("deleting for people prints %q", got)
	}
	if left := listed[row](b, "consumers"); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}
