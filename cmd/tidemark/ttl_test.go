package main

import (
	"fmt"
	"strings"
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
	// load keeps what dump writes: also that a value does not expire, into a keyspace with a default.
	for i, how := range [][]string{{"--format", "jsonl"}, {"--format", "tsv"},
		{"--format", "jsonl", "--presplit"}, {"--format", "tsv", "--presplit"}} {
		dump := b.ok("dump", "ttl", how[0], how[1])
		name := fmt.Sprint("copy-", i)
		b.ok("keyspace", "create", name, "--partitions", "hash:2", "--ttl", "1h")
		defer b.ok("keyspace", "drop", name, "--yes")
		b.run(dump, exit.OK, append([]string{"load", name, "-"}, how...)...)
		if again := b.ok("dump", name, how[0], how[1]); again != dump {
			t.Errorf("%v: dumped %s and loaded, it is dumped as %s", how, dump, again)
		}
		b.run(dump, exit.OK, append([]string{"load", name, "-", "--ignore-expiry", "--ttl", "never"},
			how...)...)
		for _, r := range listed[row](b, "scan", name) {
			if r.Expires != nil {
				t.Errorf("%v: with its expiry ignored %s expires at %s", how, r.Key, r.Expires)
			}
		}
	}
	// A dump of a keyspace without a default may say that its values do not expire; if it does not,
	// load says that they do now.
	b.ok("keyspace", "create", "plain", "--partitions", "hash:2")
	defer b.ok("keyspace", "drop", "plain", "--yes")
	b.ok("put", "plain", "p", "1")
	for _, how := range [][]string{nil, {"--presplit"}} {
		for format, line := range map[string]string{"tsv": "p\t1\tnever\n",
			"jsonl": `{"key":"p","value":"1","expires":"never"}` + "\n"} {
			dump := b.ok("dump", "plain", "--format", format, "--never")
			if dump != line {
				t.Errorf("a dump that is to say never says %s", dump)
			}
			load := append([]string{"load", "ttl", "-", "--format", format}, how...)
			if r := b.run(dump, exit.OK, load...); lives("p") != 0 || strings.Contains(r.err, "expire") {
				t.Errorf("p, which does not expire, lives for %s after %v: %s", lives("p"), load, r.err)
			}
			r := b.run(b.ok("dump", "plain", "--format", format), exit.OK, load...)
			about("p", 24*time.Hour)
			if !strings.Contains(r.err, "records that do not say when they expire: 1; they live for 24h") {
				t.Errorf("%v of values that expire from now on says %q", load, r.err)
			}
			if r := b.run("p\t1\n", exit.OK, append([]string{"load", "ttl", "-", "--ttl", "12h"},
				how...)...); strings.Contains(r.err, "expire") {
				t.Errorf("a load with a time to live says %q", r.err)
			}
		}
	}
	old := b.run("old\tv\t2001-01-01T00:00:00Z\n", exit.OK, "load", "ttl", "-")
	if !strings.Contains(old.err, "records that had expired: 1") {
		t.Errorf("a load of what has expired says %q", old.err)
	}
	b.fails(exit.NotFound, "old", "get", "ttl", "old")
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
