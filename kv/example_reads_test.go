package kv_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// A list of what there is, from the nearest replicas, and how old it is.
func ExampleNearest() {
	ctx, fruit := example.ctx, example.fruit
	var info kv.ReadInfo
	for pair, err := range fruit.Scan(ctx, kv.Nearest(), kv.ReadAt(&info)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s is %s\n", pair.Key, pair.Value)
	}
	fmt.Println("this was so", info.Age, "ago, or later")
}

// What a client has just written is there, whichever replica answers.
func ExampleReadYourWrites() {
	ctx, fruit := example.ctx, example.fruit
	if _, err := fruit.Put(ctx, []byte("apple"), []byte("green")); err != nil {
		log.Fatal(err)
	}
	pair, err := fruit.Get(ctx, []byte("apple"), kv.ReadYourWrites())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s\n", pair.Key, pair.Value)
}

// Every write is seen that was acknowledged before; the value comes from the nearest replica.
func ExampleLinearizableFollower() {
	ctx, fruit := example.ctx, example.fruit
	pair, err := fruit.Get(ctx, []byte("apple"), kv.LinearizableFollower())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s\n", pair.Key, pair.Value)
}

// Every write that was acknowledged more than five seconds ago is seen.
func ExampleMaxStaleness() {
	ctx, fruit := example.ctx, example.fruit
	pair, err := fruit.Get(ctx, []byte("apple"), kv.MaxStaleness(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s\n", pair.Key, pair.Value)
}

// An old answer is better than none.
func ExampleAnyStaleness() {
	ctx, fruit := example.ctx, example.fruit
	var info kv.ReadInfo
	n, err := fruit.Count(ctx, kv.AnyStaleness(), kv.ReadAt(&info))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d fruits as of %s\n", n, info.At.Time())
}

// Several reads of one moment, from the nearest replicas.
func ExampleClient_View_replicas() {
	ctx, client, fruit := example.ctx, example.client, example.fruit
	err := client.View(ctx, func(s *kv.Snapshot) error {
		n, err := s.Count(ctx, fruit)
		if err != nil {
			return err
		}
		pair, err := s.Get(ctx, fruit, []byte("apple"))
		if err != nil {
			return err
		}
		fmt.Printf("of %d one is %s, as of %s\n", n, pair.Value, s.Timestamp())
		return nil
	}, kv.MaxStaleness(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleLocality() {
	var (
		ctx       context.Context
		endpoints []string
	)
	client, err := kv.Open(ctx, endpoints, kv.Locality("eu", "a"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
