package kv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// CreateKeyspaceIfMissing is CreateKeyspace for a program that wants the keyspace to be there,
// whichever process comes first: it creates the keyspace, or takes the one that exists, and returns
// when it can be used. created says which.
//
// A keyspace that exists has to be what the options ask for: the partitioning, the number of hash
// partitions, commit wait, and, where an option names them, the replicas and the GC window.
// Otherwise the error is ErrKeyspaceExists, and names the difference. Split points are not
// compared: partitions split and merge.
func (c *Client) CreateKeyspaceIfMissing(ctx context.Context, name string, options ...KeyspaceOption) (ks *Keyspace, created bool, err error) {
	const op = "create keyspace"
	bounded, cancel := c.bound(ctx)
	defer cancel()
	for {
		ks, err := c.CreateKeyspace(ctx, name, options...)
		if err == nil {
			return ks, true, nil
		}
		if !errors.Is(err, ErrKeyspaceExists) {
			return nil, false, err
		}
		ks = c.Keyspace(name)
		info, described := ks.Describe(ctx)
		if errors.Is(described, ErrKeyspaceNotFound) || described == nil && info.State == KeyspaceDropping {
			// It was dropped meanwhile.
			if stop := c.pause(bounded, resolvePause); stop != nil {
				return nil, false, wrapAdmin(op, name, stop)
			}
			continue
		}
		if described != nil {
			return nil, false, described
		}
		if different := info.differs(options); different != "" {
			return nil, false, &Error{
				Op: op, Keyspace: name, wraps: []error{ErrKeyspaceExists},
				Message: "a keyspace of this name exists, with " + different +
					"; use it as it is, choose another name, or drop it first",
			}
		}
		if err := c.awaitKeyspace(ctx, keys.KeyspaceID(info.ID), name, info.HashPartitions); err != nil {
			return nil, false, wrapAdmin(op, name, err)
		}
		return ks, false, nil
	}
}

// differs says in what a keyspace is not as the options ask for; empty if it is. The options are
// valid.
func (i KeyspaceInfo) differs(options []KeyspaceOption) string {
	want := newKeyspaceSettings(options)
	age, idle := want.maxAge.Truncate(time.Millisecond), want.maxIdle.Truncate(time.Millisecond)
	switch {
	case i.HashPartitions != want.hashPartitions:
		return fmt.Sprintf("partitioning %s instead of %s", i.Partitioning(), partitioningText(want.hashPartitions))
	case i.CommitWait != want.commitWait:
		return fmt.Sprintf("commit wait %s instead of %s", onOff(i.CommitWait), onOff(want.commitWait))
	case want.replicas != 0 && i.Replicas != want.replicas:
		return fmt.Sprintf("%d replicas instead of %d", i.Replicas, want.replicas)
	case want.gcWindow != 0 && i.GCWindow != want.gcWindow:
		return fmt.Sprintf("a GC window of %s instead of %s", i.GCWindow, want.gcWindow)
	case age != 0 && i.MaxTransactionAge != age:
		return fmt.Sprintf("a maximum age of transactions of %s instead of %s", i.MaxTransactionAge, age)
	case idle != 0 && i.MaxTransactionIdle != idle:
		return fmt.Sprintf("a maximum idle time of transactions of %s instead of %s", i.MaxTransactionIdle, idle)
	}
	return ""
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
