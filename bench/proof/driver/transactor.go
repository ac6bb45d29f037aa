package driver

import (
	"context"
	"iter"
	"math/rand/v2"

	"github.com/tidemarkdb/tidemark/kv"
)

// Transactor is a client of a database with transactions over all keys of one keyspace, whatever
// partitions they lie in. Its methods may be called from any number of goroutines. Errors are as in
// kv: ErrOutcomeUnknown says that an update may have taken effect, any other error that it has not
// and never will.
type Transactor interface {
	// Update runs f in a transaction, and again after every conflict, and commits what it wrote. It
	// returns the commit timestamp. An error of f aborts the transaction and is returned.
	Update(ctx context.Context, f func(Tx) error) (kv.Timestamp, error)
	// View runs f in a transaction that only reads, and returns the moment that it read.
	View(ctx context.Context, f func(Tx) error) (kv.Timestamp, error)
	// ViewAt is View as of a moment.
	ViewAt(ctx context.Context, at kv.Timestamp, f func(Tx) error) error
}

// Tx is one attempt of a transaction; it is used by one goroutine, and not after the function that
// it was handed to has returned. Reads see what the attempt has written.
type Tx interface {
	// Get returns the value of a key; kv.ErrNotFound if there is none.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// Scan yields the pairs whose keys begin with prefix, in order. An error is the last thing it
	// yields.
	Scan(ctx context.Context, prefix []byte) iter.Seq2[kv.Pair, error]
	// Put and Delete take effect with the commit.
	Put(key, value []byte) error
	Delete(key []byte) error
}

// Transactions is a Workload for a Transactor.
type Transactions interface {
	// Name is for reports, and the name of the keyspace.
	Name() string
	Clients() int
	// Splits are keys in ascending order, between which its transactions go to and fro: where a
	// range keyspace of it is split.
	Splits() []string
	Setup(ctx context.Context, run *Run, db Transactor) error
	Drive(ctx context.Context, run *Run, number int, db Transactor, random *rand.Rand)
	Check(ctx context.Context, run *Run, db Transactor) error
}

// transactional is a Workload of Transactions.
type transactional struct {
	Transactions
	connect func(client *Client, keyspace string) Transactor
	layout  []kv.KeyspaceOption
}

// Transactional makes a Workload of Transactions, in a keyspace with that layout. connect is how a
// client of the SDK does transactions in a keyspace.
func Transactional(load Transactions, connect func(client *Client, keyspace string) Transactor,
	layout ...kv.KeyspaceOption) Workload {
	return &transactional{load, connect, layout}
}

// Setup implements Workload.
func (t *transactional) Setup(ctx context.Context, run *Run) error {
	if err := run.CreateKeyspace(ctx, t.Name(), t.layout...); err != nil {
		return err
	}
	client, hangUp, err := run.Connect(ctx, t.Name())
	if err != nil {
		return err
	}
	defer hangUp()
	return t.Transactions.Setup(ctx, run, t.connect(client, t.Name()))
}

// Drive implements Workload.
func (t *transactional) Drive(ctx context.Context, run *Run, number int, client *Client,
	random *rand.Rand) {
	t.Transactions.Drive(ctx, run, number, counted{t.connect(client, t.Name()), run}, random)
}

// Check implements Workload.
func (t *transactional) Check(ctx context.Context, run *Run, client *Client) error {
	return t.Transactions.Check(ctx, run, t.connect(client, t.Name()))
}

// counted is a Transactor whose transactions are counted.
type counted struct {
	Transactor
	run *Run
}

// Update implements Transactor.
func (c counted) Update(ctx context.Context, f func(Tx) error) (kv.Timestamp, error) {
	attempts := 0
	at, err := c.Transactor.Update(ctx, func(tx Tx) error {
		attempts++
		return f(tx)
	})
	c.run.CountTransaction(attempts, err)
	return at, err
}

// View implements Transactor.
func (c counted) View(ctx context.Context, f func(Tx) error) (kv.Timestamp, error) {
	attempts := 0
	at, err := c.Transactor.View(ctx, func(tx Tx) error {
		attempts++
		return f(tx)
	})
	c.run.CountTransaction(attempts, err)
	return at, err
}
