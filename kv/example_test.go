package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

func Example() {
	ctx := context.Background()
	client, err := kv.Open(ctx, []string{"127.0.0.1:7400"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	users, err := client.CreateKeyspace(ctx, "users", kv.Hash(32))
	if errors.Is(err, kv.ErrKeyspaceExists) {
		users = client.Keyspace("users")
	} else if err != nil {
		log.Fatal(err)
	}

	version, err := users.Put(ctx, []byte("ada"), []byte("Lovelace"))
	if err != nil {
		log.Fatal(err)
	}
	pair, err := users.Get(ctx, []byte("ada"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s since %s\n", pair.Key, pair.Value, version.Time().Format(time.RFC3339))
}

func ExampleKeyspace_Scan() {
	var (
		ctx    context.Context
		events *kv.Keyspace
	)
	// The last ten events of June.
	for pair, err := range events.Scan(ctx, kv.Prefix([]byte("2031-06-")), kv.Reverse(),
		kv.Limit(10)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\t%s\n", pair.Key, pair.Value)
	}
}

func ExampleKeyspace_CompareAndSwap() {
	var (
		ctx      context.Context
		accounts *kv.Keyspace
	)
	// Append to a value that others change too.
	key := []byte("log")
	for {
		pair, err := accounts.Get(ctx, key)
		expect := kv.ExpectVersion(pair.Version)
		if errors.Is(err, kv.ErrNotFound) {
			expect = kv.ExpectAbsent()
		} else if err != nil {
			log.Fatal(err)
		}
		swap, err := accounts.CompareAndSwap(ctx, key, expect, kv.Set(append(pair.Value, '!')))
		if err != nil {
			log.Fatal(err)
		}
		if swap.Swapped {
			return
		}
		// Another client was faster: swap.Current is what is there now.
	}
}

func ExampleKeyspace_Batch() {
	var (
		ctx    context.Context
		orders *kv.Keyspace
	)
	_, err := orders.Batch().
		Put([]byte("order/17/state"), []byte("paid")).
		Put([]byte("order/17/paid-at"), []byte("2031-06-01")).
		Delete([]byte("order/17/reminder")).
		Commit(ctx)
	switch {
	case errors.Is(err, kv.ErrCrossPartition):
		log.Print("these keys cannot be written together: ", err)
	case errors.Is(err, kv.ErrOutcomeUnknown):
		log.Print("read the keys to find out: ", err)
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleAt() {
	var (
		ctx    context.Context
		client *kv.Client
		users  *kv.Keyspace
	)
	before := client.Timestamp()
	if _, err := users.DeleteRange(ctx, kv.All()); err != nil {
		log.Fatal(err)
	}
	// As it was before.
	n, err := users.Count(ctx, kv.At(before))
	fmt.Println(n, err)
}
