package main

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// What is written with --ttl says when it expires, what is not goes by the keyspace's default, and
// what cannot be is refused.
func TestTTLFlags(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "ttl", "--partitions", "hash:2", "--ttl", "24h")
	defer b.ok("keyspace", "drop", "ttl", "--yes")
	type row struct {
		Key     string
		Expires *time.Time
	}
	lives := func(key string) time.Duration {
		t.Helper()
		all := listed[row](b, "get", "ttl", key)
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		if all[0].Expires == nil {
			return 0
		}
		return time.Until(*all[0].Expires)
	}
	about := func(key string, want time.Duration) {
		t.Helper()
		if got := lives(key); got > want || got < want-10*time.Minute {
			t.Errorf("%s lives %s, want %s", key, got, want)
		}
	}
	b.ok("put", "ttl", "a", "1", "--ttl", "2h")
	b.ok("put", "ttl", "b", "1")
	b.ok("put", "ttl", "c", "1", "--ttl", "never")
	b.ok("cas", "ttl", "d", "1", "--expect-absent", "--ttl", "3h")
	b.ok("increment", "ttl", "e", "--ttl", "4h")
	b.run("f\t1\n", exit.OK, "load", "ttl", "-", "--ttl", "5h")
	b.run("g\t1\n", exit.OK, "load", "ttl", "-", "--ttl", "6h", "--presplit")
	for key, want := range map[string]time.Duration{"a": 2 * time.Hour, "b": 24 * time.Hour, "c": 0,
		"d": 3 * time.Hour, "e": 4 * time.Hour, "f": 5 * time.Hour, "g": 6 * time.Hour} {
		about(key, want)
	}
	rows := map[string]bool{}
	for _, r := range listed[row](b, "scan", "ttl") {
		rows[r.Key] = r.Expires != nil
	}
	if len(rows) != 7 || !rows["a"] || rows["c"] {
		t.Errorf("a scan shows %v", rows)
	}
	// What dump writes load takes, and the records live as the keyspace says.
	dump := b.ok("dump", "ttl", "--format", "jsonl")
	b.ok("keyspace", "create", "copy", "--partitions", "hash:2")
	defer b.ok("keyspace", "drop", "copy", "--yes")
	b.run(dump, exit.OK, "load", "copy", "-", "--format", "jsonl")
	for _, r := range listed[row](b, "scan", "copy") {
		if r.Expires != nil {
			t.Errorf("the copy of %s expires at %s", r.Key, r.Expires)
		}
	}
	type info struct {
		Default any `json:"default_ttl"`
	}
	if all := listed[info](b, "keyspace", "describe", "ttl"); len(all) != 1 || all[0].Default == nil {
		t.Errorf("describe shows %+v", all)
	}
	all := listed[info](b, "keyspace", "alter", "ttl", "--ttl", "never")
	if len(all) != 1 || all[0].Default != nil {
		t.Errorf("the default is %+v after it was taken away", all)
	}
	for _, bad := range []string{"1", "1us", "-1s", "90000h", "soon", "0"} {
		b.fails(exit.Usage, "--ttl", "put", "ttl", "x", "1", "--ttl", bad)
		b.fails(exit.Usage, "--ttl", "keyspace", "alter", "ttl", "--ttl", bad)
	}
	b.fails(exit.Usage, "whole milliseconds", "keyspace", "alter", "ttl", "--ttl", "1500us")
	b.fails(exit.Usage, "ttl", "cas", "ttl", "a", "--delete", "--expect", "1", "--ttl", "1h")
}
