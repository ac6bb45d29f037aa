package driver

import (
	"context"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/kv"
)

// Client is a client of the SDK for one Drive of a workload. It reports the outcome of every call,
// so that no error is lost, whatever the workload does with the error.
type Client struct {
	sdk     *kv.Client
	reports reports
	ways    *ways
}

// ways sends every second read of the latest state to the nearest replica. So all checks of a
// workload cover both ways to read.
type ways struct{ reads atomic.Uint32 }

// another reports whether the next read goes to the nearest replica.
func (w *ways) another() bool { return w.reads.Add(1)%2 == 0 }

// Connect opens a client for a workload. The caller closes the client with hangUp.
func (r *Run) Connect(ctx context.Context, workload string) (client *Client, hangUp func() error,
	err error) {
	retries := NewRetries()
	sdk, err := r.Open(ctx, kv.Metrics(retries))
	if err != nil {
		return nil, nil, err
	}
	return r.Client(sdk, retries, workload), sdk.Close, nil
}

// Client makes the client of a workload from a client of the SDK. retries must be the metrics that
// the SDK's client was given. If retries is nil, the attempts of single requests are not counted.
func (r *Run) Client(sdk *kv.Client, retries *Retries, workload string) *Client {
	return &Client{sdk, reports{r, workload, retries}, new(ways)}
}

// For returns the same client for the reports of another workload.
func (c *Client) For(workload string) *Client {
	return &Client{c.sdk, reports{c.reports.run, workload, c.reports.retries}, c.ways}
}

// Keyspace is kv.Client.Keyspace.
func (c *Client) Keyspace(name string) *Keyspace {
	return &Keyspace{c.sdk.Keyspace(name), c.reports, c.ways}
}

// Timestamp is kv.Client.Timestamp.
func (c *Client) Timestamp() kv.Timestamp { return c.sdk.Timestamp() }

// Observe is kv.Client.Observe.
func (c *Client) Observe(at kv.Timestamp) { c.sdk.Observe(at) }

// Report reports the start of an operation that does not use the Client's own methods. When the
// operation is over, the caller calls ended with its error.
func (c *Client) Report(ctx context.Context, kind string) (ended func(error)) {
	return c.reports.begin(ctx, kind).end
}

// Update is kv.Client.Update. kind is the operation's name in the table, such as "update".
func (c *Client) Update(ctx context.Context, kind string, f func(*kv.Txn) error,
	options ...kv.TxnOption) (kv.Timestamp, error) {
	report := c.reports.begin(ctx, kind)
	attempts := 0
	at, err := c.sdk.Update(ctx, func(tx *kv.Txn) error {
		attempts++
		return f(tx)
	}, options...)
	report.endAfter(attempts, err)
	return at, err
}

// View is kv.Client.View. kind is the operation's name in the table, such as "view".
func (c *Client) View(ctx context.Context, kind string, f func(*kv.Snapshot) error) error {
	report := c.reports.begin(ctx, kind)
	attempts := 0
	var options []kv.ViewOption
	if c.ways.another() {
		options = append(options, kv.LinearizableFollower())
	}
	err := c.sdk.View(ctx, func(view *kv.Snapshot) error {
		attempts++
		return f(view)
	}, options...)
	report.endAfter(attempts, err)
	return err
}

// ViewAt runs f with kv.Client.SnapshotAt.
func (c *Client) ViewAt(ctx context.Context, at kv.Timestamp, f func(*kv.Snapshot) error) error {
	report := c.reports.begin(ctx, "view at")
	err := f(c.sdk.SnapshotAt(at))
	report.end(err)
	return err
}

// Begin is kv.Client.Begin.
func (c *Client) Begin(ctx context.Context, options ...kv.TxnOption) (*Txn, error) {
	report := c.reports.begin(ctx, "begin")
	tx, err := c.sdk.Begin(ctx, options...)
	report.end(err)
	return &Txn{tx, c.reports}, err
}

// Txn is a transaction that its workload itself begins, ends and retries.
type Txn struct {
	sdk     *kv.Txn
	reports reports
}

// ID is kv.Txn.ID.
func (t *Txn) ID() string { return t.sdk.ID() }

// Again is kv.Txn.Again.
func (t *Txn) Again(ctx context.Context) (*Txn, error) {
	report := t.reports.beginPart(ctx, "again")
	tx, err := t.sdk.Again(ctx)
	report.end(err)
	return &Txn{tx, t.reports}, err
}

// GetForUpdate is kv.Txn.GetForUpdate.
func (t *Txn) GetForUpdate(ctx context.Context, ks *Keyspace, key []byte) (kv.Pair, error) {
	report := t.reports.beginPart(ctx, "get for update")
	pair, err := t.sdk.GetForUpdate(ctx, ks.sdk, key)
	report.end(err)
	return pair, err
}

// Put is kv.Txn.Put.
func (t *Txn) Put(ks *Keyspace, key, value []byte) error { return t.sdk.Put(ks.sdk, key, value) }

// Commit is kv.Txn.Commit.
func (t *Txn) Commit(ctx context.Context) (kv.Timestamp, error) {
	report := t.reports.beginPart(ctx, "commit")
	at, err := t.sdk.Commit(ctx)
	report.end(err)
	return at, err
}

// Rollback is kv.Txn.Rollback.
func (t *Txn) Rollback() { t.sdk.Rollback() }
