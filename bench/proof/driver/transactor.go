package driver

import (
	"context"
	"iter"
	"math/rand/v2"

	"github.com/tidemarkdb/tidemark/kv"
)

// Transactor is a client of a database with transactions over all keys of one keyspace, in any
// partitions. Its methods are safe for concurrent use. Errors are as in kv: ErrOutcomeUnknown means
// that an update may have taken effect. Any other error means that the update had no effect and
// will never have one.
type Transactor interface {
	// Update runs f in a transaction and commits the writes of f. It runs f again after every
	// conflict. It returns the commit timestamp. An error of f aborts the transaction and is returned.
	Update(ctx context.Context, f func(Tx) error) (kv.Timestamp, error)
	// View runs f in a transaction that only reads, and returns the timestamp of the reads.
	View(ctx context.Context, f func(Tx) error) (kv.Timestamp, error)
	// ViewAt is View at a timestamp.
	ViewAt(ctx context.Context, at kv.Timestamp, f func(Tx) error) error
}

// Tx is one attempt of a transaction. Only one goroutine may use it, and only until the function
// that got it has returned. Reads see the attempt's own writes.
type Tx interface {
	// Get returns the value of a key. It returns kv.ErrNotFound if the key does not exist.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// Scan yields the pairs whose keys begin with prefix, in order. After an error it yields nothing
	// more.
	Scan(ctx context.Context, prefix []byte) iter.Seq2[kv.Pair, error]
	// Put and Delete take effect with the commit.
	Put(key, value []byte) error
	Delete(key []byte) error
}

// Transactions is a Workload for a Transactor.
type Transactions interface {
	// Name returns the name of the workload for reports, which is also the name of its keyspace.
	Name() string
	Clients() int
	// Splits returns keys in ascending order, at which a range keyspace is split. The transactions use
	// keys on both sides of the splits.
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

// Transactional makes a Workload of Transactions. Its keyspace has the given layout. connect makes
// the Transactor for a keyspace from a client of the SDK.
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

// counted is a Transactor that counts its transactions.
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
