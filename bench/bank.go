package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Bank moves money between accounts: a transfer reads two accounts and writes both, and an audit
// reads all accounts at one moment. The total amount of money never changes. An audit that finds
// another sum fails.
type Bank struct {
	// Accounts is the number of accounts. The default is 100.
	Accounts int
	// Audits is the share of audits among all transactions, from 0 to 1.
	Audits float64
	// Lock makes a transfer lock the accounts when it reads them.
	Lock bool

	run  *transactionRun
	keys [][]byte
}

const (
	openingBalance = 1000
	// MaxAccounts is the maximum number of accounts, or of counters.
	MaxAccounts = 10_000
	// preparedAtOnce is the number of keys that one transaction sets up.
	preparedAtOnce = 1000
)

// ErrWrongTotal: money, or increments, were lost or created.
var ErrWrongTotal = errors.New("what is there at the end is wrong")

func (b *Bank) name() string { return "bank" }

func (b *Bank) about() string {
	how := ""
	if b.Lock {
		how = ", transfers lock as they read"
	}
	return counted(uint64(b.Accounts), "account") + how
}

func (b *Bank) withDefaults(Config) error {
	if b.Accounts == 0 {
		b.Accounts = 100
	}
	switch {
	case b.Accounts < 2 || b.Accounts > MaxAccounts:
		return invalid("Accounts", b.Accounts, "it is 2 to %d", MaxAccounts)
	case !(b.Audits >= 0 && b.Audits <= 1):
		return invalid("Audits", b.Audits, "it is 0 to 1")
	}
	return nil
}

func (b *Bank) prepare(ctx context.Context, r *transactionRun) error {
	b.run, r.cfg.Records, r.cfg.ValueSize = r, uint64(b.Accounts), 8
	b.keys = numberedKeys(r.cfg.KeyPrefix+"account-", b.Accounts)
	return setNumbers(ctx, r.store, b.keys, openingBalance)
}

func (b *Bank) draw(random *rand.Rand) (Kind, func(context.Context) error) {
	if random.Float64() < b.Audits {
		return Audit, func(ctx context.Context) error {
			_, err := b.audit(ctx)
			return err
		}
	}
	from := random.IntN(len(b.keys))
	to := (from + 1 + random.IntN(len(b.keys)-1)) % len(b.keys)
	amount := 1 + random.Uint64N(10)
	return Transfer, func(ctx context.Context) error {
		return b.run.update(ctx, func(
			tx Tx) error {
			return b.transfer(ctx, tx, b.keys[from], b.keys[to], amount)
		})
	}
}

// transfer moves the wanted amount, or as much as the account has.
func (b *Bank) transfer(ctx context.Context, tx Tx, from, to []byte, amount uint64) error {
	var balances [2]uint64
	for i, key := range [][]byte{from, to} {
		value, err := tx.Get(ctx, key, b.Lock)
		if err == nil {
			balances[i], err = number(key, value)
		}
		if err != nil {
			return err
		}
	}
	amount = min(amount, balances[0])
	if err := tx.Put(from, numberValue(balances[0]-amount)); err != nil {
		return err
	}
	return tx.Put(to, numberValue(balances[1]+amount))
}

// audit adds up all accounts.
func (b *Bank) audit(ctx context.Context) (sum uint64, err error) {
	if sum, err = addUp(ctx, b.run.store, b.keys); err != nil {
		return 0, err
	}
	if want := uint64(len(b.keys)) * openingBalance; sum != want {
		return sum, fmt.Errorf("%w: the %d accounts have %d in all, and were given %d",
			ErrWrongTotal, len(b.keys), sum, want)
	}
	return sum, nil
}

func (b *Bank) verify(ctx context.Context) (string, error) {
	sum, err := b.audit(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the accounts have %d in all, as in the beginning", sum), nil
}

// numberedKeys returns keys that end in a number of eight digits.
func numberedKeys(prefix string, count int) [][]byte {
	keys := make([][]byte, count)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%s%08d", prefix, i)
	}
	return keys
}

func numberValue(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func number(key, value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("key %q has a value of %d bytes, which is no number: does another "+
			"client write to the keyspace?", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// setNumbers writes the same number to all keys.
func setNumbers(ctx context.Context, store Transactor, keys [][]byte, n uint64) error {
	for from := 0; from < len(keys); from += preparedAtOnce {
		err := store.Update(ctx, func(tx Tx) error {
			for _, key := range keys[from:min(from+preparedAtOnce, len(keys))] {
				if err := tx.Put(key, numberValue(n)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("making ready: %w", err)
		}
	}
	return nil
}

// addUp returns the sum of all keys' numbers at one moment.
func addUp(ctx context.Context, store Transactor, keys [][]byte) (sum uint64, err error) {
	values, err := store.Snapshot(ctx, keys)
	if err != nil {
		return 0, err
	}
	for i, value := range values {
		n, err := number(keys[i], value)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
