package kv_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// The whole public interface, once, against real servers.
func TestAgainstRealServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{})
		client := cluster.Client(t)
		for name, layout := range map[string]kv.KeyspaceOption{
			"hash": kv.Hash(8), "one": kv.Hash(1), "range": kv.Range(),
			"split": kv.Range([]byte("key0200"), []byte("key0500")),
		} {
			ks, err := client.CreateKeyspace(ctx, name, layout)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := range 1000 {
				want = append(want, fmt.Sprintf("key%04d", i))
				if _, err := ks.Put(ctx, []byte(want[i]), []byte("v"+want[i])); err != nil {
					t.Fatal(err)
				}
			}
			before := client.Timestamp()
			check := func(what string, want []string, options ...kv.ScanOption) {
				t.Helper()
				var got []string
				for p, err := range ks.Scan(ctx, options...) {
					if err != nil {
						t.Fatalf("%s, %s after %d rows: %v", name, what, len(got), err)
					}
					if string(p.Value) != "v"+string(p.Key) {
						t.Fatalf("%s, %s: %q has the value %q", name, what, p.Key, p.Value)
					}
					got = append(got, string(p.Key))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s, %s: %d rows, want %d", name, what, len(got), len(want))
				}
			}
			reversed := slices.Clone(want)
			slices.Reverse(reversed)
			check("all", want)
			check("small pages", want, kv.PageSize(7))
			check("reverse", reversed, kv.Reverse(), kv.PageSize(50))
			check("prefix", want[100:200], kv.Prefix([]byte("key01")))
			check("from to", want[190:510], kv.From([]byte("key0190")), kv.To([]byte("key0510")))
			check("limit", want[450:550], kv.From([]byte("key0450")), kv.Limit(100))
			check("limit reverse", reversed[:30], kv.Limit(30), kv.Reverse())
			if n, err := ks.DeleteRange(ctx, kv.From([]byte("key0100")),
				kv.To([]byte("key0900"))); err != nil || n != 800 {
				t.Fatalf("%s: deleted %d: %v", name, n, err)
			}
			check("after the deletion", append(slices.Clone(want[:100]), want[900:]...))
			check("at", want, kv.At(before))
			if n, err := ks.Count(ctx); err != nil || n != 200 {
				t.Fatalf("%s: counted %d: %v", name, n, err)
			}
			if n, err := ks.Count(ctx, kv.At(before)); err != nil || n != 1000 {
				t.Fatalf("%s: counted %d: %v", name, n, err)
			}
			pairs, err := ks.BatchGet(ctx, [][]byte{[]byte("key0001"), []byte("key0300"),
				[]byte("key0999")})
			if err != nil || !pairs[0].Exists() || pairs[1].Exists() || !pairs[2].Exists() {
				t.Fatalf("%s: %v, %v", name, pairs, err)
			}
			version, err := ks.Batch().Put([]byte("a"), nil).Commit(ctx)
			if err != nil {
				t.Fatal(err)
			}
			swap, err := ks.CompareAndSwap(ctx, []byte("a"), kv.ExpectVersion(version), kv.Delete())
			if err != nil || !swap.Swapped {
				t.Fatalf("%s: %+v, %v", name, swap, err)
			}
			parts, err := admin.New(client).Partitions(ctx, name)
			if err != nil || len(parts) == 0 {
				t.Fatalf("%s: %+v, %v", name, parts, err)
			}
			if err := client.DropKeyspace(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	})
}
