package backend

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// Store keeps the keys of the API, and all other state of etcd. Its errors are those of package
// store. *store.Store is a Store.
type Store interface {
	KV
	Leases
	Watches
	Users
	Replica
	Imports
}

// KV is the keys and their revisions.
type KV interface {
	// Execute executes a command, at most once, on any member. It waits for a leader.
	Execute(context.Context, *storepb.Command) (*storepb.Result, error)
	// Read waits for a leader, and returns once this member has everything that was acknowledged
	// before the call.
	Read(context.Context) (*store.View, error)
	// ReadTxnAs executes a read-only transaction on this member's state, for a client. The caller
	// calls release when it no longer needs the answer.
	ReadTxnAs(context.Context, *storepb.AuthInfo, *storepb.Txn) (
		result *storepb.Result, release func(), err error)
	Revision() uint64
	Compacted() uint64
	// AwaitCompaction waits until this member has removed what compactions have made unreadable.
	AwaitCompaction(context.Context) error
}

// Leases are the leases to which keys are attached.
type Leases interface {
	// RenewAll renews leases to their full terms, on any member. It returns the terms, 0 for a
	// lease that does not exist.
	RenewAll(ctx context.Context, leases []int64) ([]time.Duration, error)
	// TimeToLive describes a lease, on any member.
	TimeToLive(ctx context.Context, lease int64) (store.LeaseInfo, error)
	// LeasesAs lists the leases that exist, as far as this member knows, and that a client may see,
	// by the end of their terms.
	LeasesAs(context.Context, *storepb.AuthInfo) ([]int64, error)
	// AttachedKeys lists the keys of a lease.
	AttachedKeys(lease int64) ([][]byte, error)
}

// Watches report changes of keys on this member.
type Watches interface {
	NewWatchStream() (*watch.Stream, error)
}

// Users are users and roles.
type Users interface {
	// Authority returns the users and roles that this member knows.
	Authority() *authority.State
}

// Leader says who leads the members.
type Leader interface {
	// Leadership returns the leader, as far as this member knows, and a channel that is closed when
	// that changes.
	Leadership() (store.Leadership, <-chan struct{})
}

// Replica is this member's copy of the store.
type Replica interface {
	Leader
	AppliedIndex() uint64
	// Bytes returns the size of the store as its quota counts it; DiskBytes estimates its size on
	// disk.
	Bytes() uint64
	DiskBytes() (uint64, error)
	// Alarms returns the raised alarms, as far as this member knows.
	Alarms() []*storepb.Alarm
	Hash(ctx context.Context, revision uint64) (store.Hash, error)
	HashAll(context.Context) (sum uint32, revision uint64, err error)
	Export() (*store.Export, error)
}

// Imports import the state of another store, by commands (store.Import).
type Imports interface {
	// ImportState returns the progress of the latest import, on any member.
	ImportState(context.Context) (store.ImportState, error)
}
