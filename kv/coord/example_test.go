package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// connect is what examples begin with.
func connect() (context.Context, *coord.Client, *coord.Session, func()) {
	ctx := context.Background()
	client, err := coord.Connect(ctx, endpoints, coord.Prefix("examples/"))
	if err != nil {
		log.Fatal(err)
	}
	session, err := client.NewSession(ctx, coord.TTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	return ctx, client, session, func() {
		if err := errors.Join(session.Close(ctx), client.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

func Example() {
	ctx := context.Background()
	client, err := coord.Connect(ctx, endpoints, coord.Prefix("shop/"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	session, err := client.NewSession(ctx, coord.TTL(10*time.Second), coord.Label("machine 7"))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close(ctx)

	lock, err := client.Mutex("reports").Lock(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lock.Held().Err() == nil, "token above 0:", lock.Token() > 0)
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(context.Cause(lock.Held()))
	// Output:
	// held: true token above 0: true
	// coord: hold reports: it was released
}

func ExampleMutex_TryLock() {
	ctx, client, session, end := connect()
	defer end()
	lock, err := client.Mutex("nightly").TryLock(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	_, err = client.Mutex("nightly").TryLock(ctx, session)
	fmt.Println(errors.Is(err, coord.ErrLocked))
	// Output: true
}

func ExampleRWMutex() {
	ctx, client, session, end := connect()
	defer end()
	config := client.RWMutex("config")
	one, err := config.RLock(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	another, err := config.RLock(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	_, err = config.TryLock(ctx, session)
	fmt.Println("a writer beside readers:", err)
	fmt.Println(one.Unlock(ctx), another.Unlock(ctx))
	// Output:
	// a writer beside readers: coord: try to lock config: somebody has it, or waits for it
	// <nil> <nil>
}

func ExampleElection() {
	ctx, client, session, end := connect()
	defer end()
	election := client.Election("indexer")
	leadership, err := election.Campaign(ctx, session, []byte("10.0.0.7:80"))
	if err != nil {
		log.Fatal(err)
	}
	for leader, err := range election.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if !leader.Exists() {
			fmt.Println("none leads")
			break
		}
		fmt.Printf("%s leads\n", leader.Proposal)
		if err := leadership.Resign(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 10.0.0.7:80 leads
	// none leads
}

func ExampleBarrier() {
	ctx, client, _, end := connect()
	defer end()
	barrier := client.Barrier("migration")
	if err := barrier.Hold(ctx); err != nil {
		log.Fatal(err)
	}
	go barrier.Release(ctx)
	if err := barrier.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the migration is done")
	// Output: the migration is done
}

func ExampleDoubleBarrier() {
	ctx, client, session, end := connect()
	defer end()
	const workers = 3
	done := make(chan error, workers)
	for range workers {
		go func() {
			place, err := client.DoubleBarrier("step 1", workers).Enter(ctx, session)
			if err == nil {
				// All have come. Now work, and wait for the others.
				err = place.Leave(ctx)
			}
			done <- err
		}()
	}
	for range workers {
		fmt.Println(<-done)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

func ExampleQueue() {
	ctx, client, session, end := connect()
	defer end()
	queue := client.Queue("mail")
	for _, err := range []error{
		queue.Put(ctx, []byte("newsletter"), coord.Priority(10)),
		queue.Put(ctx, []byte("password")),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	for range 2 {
		item, err := queue.Take(ctx, session)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", item.Value)
		if err := item.Done(ctx); err != nil { // until then it may be delivered again
			log.Fatal(err)
		}
	}
	// Output:
	// password
	// newsletter
}

func ExampleSequence() {
	ctx, client, session, end := connect()
	defer end()
	for range 2 {
		key, err := client.Sequence("workers").Create(ctx, session, []byte("10.0.0.7"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(key.Number > 0)
	}
	// Output:
	// true
	// true
}

func ExampleSession_Create() {
	ctx, _, session, end := connect()
	defer end()
	key, err := session.Create(ctx, "machines/7", []byte("up"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(key.Key())
	fmt.Println(key.Set(ctx, []byte("draining")), key.Delete(ctx))
	// Output:
	// examples/machines/7
	// <nil> <nil>
}

func ExampleService() {
	ctx, client, session, end := connect()
	defer end()
	service := client.Service("api")
	registration, err := service.Register(ctx, session,
		coord.Instance{ID: "7", Address: "10.0.0.7:80"})
	if err != nil {
		log.Fatal(err)
	}
	for instances, err := range service.Watch(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if len(instances.All) == 0 {
			fmt.Println("removed:", instances.Removed[0].Address)
			break
		}
		fmt.Println("added:", instances.Added[0].Address)
		if err := registration.Deregister(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// added: 10.0.0.7:80
	// removed: 10.0.0.7:80
}

func ExampleTimer() {
	ctx, client, _, end := connect()
	defer end()
	fired := 0
	timer := client.Timer("heartbeat", 100*time.Millisecond, coord.SkipMissed)
	for tick, err := range timer.Ticks(ctx) {
		if errors.Is(err, coord.ErrOutcomeUnknown) || errors.Is(err, coord.ErrClockAhead) {
			log.Print(err)
			continue
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tick.Due.Equal(tick.Due.Truncate(100 * time.Millisecond)))
		if fired++; fired == 2 {
			break
		}
	}
	// Output:
	// true
	// true
}

// A holder of a lock writes to a keyspace, and cannot once another one holds the lock.
func ExampleFence() {
	write := func(ctx context.Context, client *kv.Client, stock *kv.Keyspace,
		lock *coord.Lock) error {
		fence := coord.Fence{Keyspace: stock, Name: "stock"}
		_, err := client.Update(lock.Held(), func(tx *kv.Txn) error {
			if err := fence.Check(ctx, tx, lock.Token()); err != nil {
				return err // coord.ErrFenced: another one has the lock
			}
			return tx.Put(stock, []byte("apples"), []byte("12"))
		})
		return err
	}
	_ = write
}

// A program owns a key of a keyspace, without a session.
func ExampleOwn() {
	run := func(ctx context.Context, client *kv.Client, shards *kv.Keyspace) error {
		owned, err := coord.Own(ctx, shards, []byte("shard/7"), "machine 7")
		if err != nil {
			return err // coord.ErrOwned: another one owns it
		}
		defer owned.Release(ctx)
		_, err = client.Update(owned.Held(), func(tx *kv.Txn) error {
			if err := owned.Check(ctx, tx); err != nil {
				return err // coord.ErrLost
			}
			return tx.Put(shards, []byte("shard/7/state"), []byte("ready"))
		})
		return err
	}
	_ = run
}
