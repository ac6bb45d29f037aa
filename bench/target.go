package bench

import (
	"context"
	"errors"
)

// Target is the store under test. Its methods are called from many goroutines at once.
//
// A Target may keep key until the call has returned, and must never change value, because values of
// many calls share memory. An error is counted under the class that Config.Classify returns. A
// Target may retry or not.
type Target interface {
	// Get reads one key, linearisably. It returns ErrNotFound if there is no value.
	Get(ctx context.Context, key []byte) error
	// Put writes one key and returns when the write is durable.
	Put(ctx context.Context, key, value []byte) error
	// Scan reads up to limit rows, keys and values, in key order from the key `from` on. It returns
	// the number of rows.
	Scan(ctx context.Context, from []byte, limit int) (rows int, err error)
}

// Record is one key with its value, for BulkLoader.
type Record struct {
	Key, Value []byte
}

// BulkLoader is a Target that can write many records faster than with single calls of Put. Only the
// load phase uses it. Load may be called from several goroutines at once, with different records.
type BulkLoader interface {
	Load(ctx context.Context, records []Record) error
}

// ErrNotFound is returned by Target.Get for a key without a value.
var ErrNotFound = errors.New("bench: key not found")
