package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

var errTooPoor = errors.New("the account does not hold as much")

// example is what the examples work on; a test sets it, and runs them.
var example struct {
	ctx                                                       context.Context
	client                                                    *kv.Client
	accounts, journal, counters, orders, notes, fruit, basket *kv.Keyspace
	amount                                                    uint64
}

func number(value []byte) uint64 { return binary.BigEndian.Uint64(value) }
func bytesOf(n uint64) []byte    { return binary.BigEndian.AppendUint64(nil, n) }

// A transfer between two accounts, wherever they lie. The function runs again when another
// transaction was in the way.
func ExampleClient_Update() {
	ctx, client, accounts, journal, amount := example.ctx, example.client, example.accounts,
		example.journal, example.amount
	at, err := client.Update(ctx, func(tx *kv.Txn) error {
		from, err := tx.Get(ctx, accounts, []byte("ada"))
		if err != nil {
			return err
		}
		to, err := tx.Get(ctx, accounts, []byte("bob"))
		if err != nil {
			return err
		}
		if number(from.Value) < amount {
			return errTooPoor // nothing is written, and Update returns it
		}
		return errors.Join(
			tx.Put(accounts, from.Key, bytesOf(number(from.Value)-amount)),
			tx.Put(accounts, to.Key, bytesOf(number(to.Value)+amount)),
			tx.Put(journal, []byte("ada to bob"), bytesOf(amount)),
		)
	})
	switch {
	case err == nil:
		fmt.Println("transferred at", at)
	case errors.Is(err, errTooPoor):
		fmt.Println("nothing was transferred")
	case errors.Is(err, kv.ErrOutcomeUnknown):
		fmt.Println("read the journal to find out:", err)
	default:
		log.Fatal("nothing was transferred: ", err)
	}
}

// A key moves from one keyspace to another, and is never in both or in none.
func ExampleTxn_Delete() {
	ctx, client, fruit, basket := example.ctx, example.client, example.fruit, example.basket
	at, err := client.Update(ctx, func(tx *kv.Txn) error {
		apple, err := tx.Get(ctx, fruit, []byte("apple"))
		if err != nil {
			return err
		}
		return errors.Join(
			tx.Put(basket, []byte("apple"), apple.Value),
			tx.Delete(fruit, []byte("apple")),
		)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("moved at", at)
}

// A counter that all clients increment: with the lock, transactions wait for each other instead of
// running again.
func ExampleTxn_GetForUpdate() {
	ctx, client, counters := example.ctx, example.client, example.counters
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		pair, err := tx.GetForUpdate(ctx, counters, []byte("visits"))
		switch {
		case errors.Is(err, kv.ErrNotFound):
			return tx.Put(counters, []byte("visits"), bytesOf(1))
		case err != nil:
			return err
		}
		return tx.Put(counters, pair.Key, bytesOf(number(pair.Value)+1))
	})
	if err != nil {
		log.Fatal(err)
	}
}

// All balances of one moment.
func ExampleClient_View() {
	ctx, client, accounts := example.ctx, example.client, example.accounts
	var total uint64
	err := client.View(ctx, func(s *kv.Snapshot) error {
		total = 0 // the function may run several times
		for pair, err := range s.Scan(ctx, accounts) {
			if err != nil {
				return err
			}
			total += number(pair.Value)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(total)
}

// The past.
func ExampleClient_SnapshotAt() {
	ctx, client, accounts := example.ctx, example.client, example.accounts
	earlier := client.SnapshotAt(kv.TimestampOf(time.Now().Add(-10 * time.Minute)))
	pairs, err := earlier.BatchGet(ctx, accounts, [][]byte{[]byte("ada"), []byte("bob")})
	if err != nil {
		log.Fatal(err)
	}
	for _, pair := range pairs {
		fmt.Println(string(pair.Key), pair.Exists())
	}
}

// Part of a transaction is taken back.
func ExampleTxn_Savepoint() {
	ctx, client, orders := example.ctx, example.client, example.orders
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		if err := tx.Put(orders, []byte("order/1"), nil); err != nil {
			return err
		}
		before := tx.Savepoint()
		if err := tx.Put(orders, []byte("order/1/gift"), nil); err != nil {
			return err
		}
		if _, err := tx.Get(ctx, orders, []byte("gifts/left")); errors.Is(err, kv.ErrNotFound) {
			return tx.RollbackTo(before)
		} else if err != nil {
			return err
		}
		return nil
	}, kv.CommitWait())
	if err != nil {
		log.Fatal(err)
	}
}

// A transaction that is ended by hand, for instance because it goes with a user's session.
func ExampleClient_Begin() {
	ctx, client, notes := example.ctx, example.client, example.notes
	tx, err := client.Begin(ctx)
	for err == nil {
		if err = tx.Put(notes, []byte("note"), []byte("text")); err == nil {
			_, err = tx.Commit(ctx)
		}
		if err == nil {
			return
		}
		if !errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrTransactionAborted) {
			tx.Rollback()
			break
		}
		tx, err = tx.Again(ctx) // as old as before, so it wins at last
	}
	log.Fatal(err)
}
