package kv_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// The examples of transactions do what they say, on real servers.
func TestExamplesOfTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond}).Client(t)
		for name, ks := range map[string]**kv.Keyspace{
			"accounts": &example.accounts, "journal": &example.journal, "counters": &example.counters,
			"orders": &example.orders, "notes": &example.notes, "fruit": &example.fruit,
			"basket": &example.basket,
		} {
			var err error
			if *ks, err = client.CreateKeyspace(ctx, name, kv.Hash(2)); err != nil {
				t.Fatal(err)
			}
		}
		example.ctx, example.client, example.amount = ctx, client, 30
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			return errors.Join(tx.Put(example.accounts, []byte("ada"), bytesOf(50)),
				tx.Put(example.accounts, []byte("bob"), bytesOf(5)))
		}); err != nil {
			t.Fatal(err)
		}
		balance := func(ks *kv.Keyspace, key string, want uint64) {
			t.Helper()
			if p, err := ks.Get(ctx, []byte(key)); err != nil || number(p.Value) != want {
				t.Errorf("%s holds %x, %v; want %d", key, p.Value, err, want)
			}
		}
		there := func(ks *kv.Keyspace, key string, want bool) {
			t.Helper()
			if _, err := ks.Get(ctx, []byte(key)); (err == nil) != want ||
				(err != nil && !errors.Is(err, kv.ErrNotFound)) {
				t.Errorf("%s: %v; want that it is there: %v", key, err, want)
			}
		}
		ExampleClient_Update()
		ExampleClient_Update() // too poor, now
		balance(example.accounts, "ada", 20)
		balance(example.accounts, "bob", 35)
		balance(example.journal, "ada to bob", 30)
		if _, err := example.fruit.Put(ctx, []byte("apple"), []byte("red")); err != nil {
			t.Fatal(err)
		}
		ExampleTxn_Delete()
		there(example.fruit, "apple", false)
		there(example.basket, "apple", true)
		ExampleTxn_GetForUpdate()
		ExampleTxn_GetForUpdate()
		balance(example.counters, "visits", 2)
		ExampleClient_View()
		ExampleClient_SnapshotAt()
		ExampleTxn_Savepoint()
		there(example.orders, "order/1", true)
		there(example.orders, "order/1/gift", false)
		ExampleClient_Begin()
		there(example.notes, "note", true)
	})
}
