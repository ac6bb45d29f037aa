package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Bank moves money between accounts. A reader of all accounts finds the same total and no negative
// balance. Transfers empty accounts, and delete empty accounts. A transaction that reads at two
// timestamps, or overwrites a value that it has not seen, makes or destroys money.
type Bank struct {
	Accounts, Parallel int
	Pause              time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration
}

// opening is the balance of an account at first.
const opening = 20

// Name implements Transactions.
func (*Bank) Name() string { return "bank" }

// Clients implements Transactions.
func (b *Bank) Clients() int { return b.Parallel }

// Splits implements Transactions.
func (*Bank) Splits() []string { return []string{"account02", "account04"} }

func (b *Bank) key(i int) []byte { return fmt.Appendf(nil, "account%02d", i) }

// Setup implements Transactions.
func (b *Bank) Setup(ctx context.Context, _ *driver.Run, db driver.Transactor) error {
	_, err := db.Update(ctx, func(tx driver.Tx) error {
		for i := range b.Accounts {
			if err := b.set(tx, i, opening, "at first"); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// set writes a balance and the name of the transfer, so that no value is written twice.
func (b *Bank) set(tx driver.Tx, i, balance int, by string) error {
	if balance == 0 {
		return tx.Delete(b.key(i))
	}
	return tx.Put(b.key(i), fmt.Appendf(nil, "%d %s", balance, by))
}

func (b *Bank) balance(ctx context.Context, tx driver.Tx, i int) (int, error) {
	value, err := tx.Get(ctx, b.key(i))
	if err != nil {
		return 0, driver.IgnoreNotFound(err)
	}
	return balanceOf(value)
}

func balanceOf(value []byte) (balance int, err error) {
	_, err = fmt.Sscan(string(value), &balance)
	return balance, err
}

// Drive implements Transactions.
func (b *Bank) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	for n := 0; run.Rest(ctx, random, b.Pause); n++ {
		attempt, cancel := driver.PatienceOf(ctx, random, b.Least)
		if random.IntN(2) == 0 {
			run.Count("bank read", b.add(attempt, run, db, random.IntN(2) == 0))
		} else {
			from, to, amount := random.IntN(b.Accounts), random.IntN(b.Accounts), 1+random.IntN(5)
			_, err := db.Update(attempt, func(tx driver.Tx) error {
				return b.transfer(attempt, tx, from, to, amount, fmt.Sprintf("%d.%d", number, n))
			})
			run.Count("transfer", err)
		}
		cancel()
	}
}

func (b *Bank) transfer(ctx context.Context, tx driver.Tx, from, to, amount int, by string) error {
	rich, err := b.balance(ctx, tx, from)
	if err != nil {
		return err
	}
	poor, err := b.balance(ctx, tx, to)
	if err != nil || from == to || rich < amount {
		return err
	}
	if err := b.set(tx, from, rich-amount, by); err != nil {
		return err
	}
	return b.set(tx, to, poor+amount, by)
}

// add adds up all accounts, by single reads or by a scan.
func (b *Bank) add(ctx context.Context, run *driver.Run, db driver.Transactor, scan bool) error {
	var accounts []int
	at, err := db.View(ctx, func(tx driver.Tx) error {
		accounts = nil
		if scan {
			for pair, err := range tx.Scan(ctx, []byte("account")) {
				if err != nil {
					return err
				}
				balance, err := balanceOf(pair.Value)
				if err != nil {
					return err
				}
				accounts = append(accounts, balance)
			}
			return nil
		}
		for i := range b.Accounts {
			balance, err := b.balance(ctx, tx, i)
			if err != nil {
				return err
			}
			accounts = append(accounts, balance)
		}
		return nil
	})
	if err != nil {
		return err
	}
	total := 0
	for _, balance := range accounts {
		total += balance
		if balance < 0 {
			run.Violation("bank: at %v an account has %d: %v", at, balance, accounts)
		}
	}
	if total != opening*b.Accounts {
		run.Violation("bank: at %v all accounts (scan: %v) have %d, and should have %d: %v", at,
			scan, total, opening*b.Accounts, accounts)
	}
	return nil
}

// Check implements Transactions.
func (b *Bank) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	return b.add(ctx, run, db, true)
}
