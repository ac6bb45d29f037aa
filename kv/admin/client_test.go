package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// withFake runs f with a client of a fake cluster of three nodes, which has a keyspace "a" of three
// range partitions.
func withFake(t *testing.T, f func(t *testing.T, client *kv.Client, cluster *admin.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := fakeserver.Start(t, 3)
		defer fake.Close()
		client, err := kv.Open(t.Context(), fake.Endpoints(), kv.Dialer(fake.Dialer("client")))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.CreateKeyspace(t.Context(), "a", kv.Range([]byte("g"), []byte("t")),
			kv.Replicas(3), kv.GCWindow(time.Minute)); err != nil {
			t.Fatal(err)
		}
		f(t, client, admin.New(client))
	})
}

// A cluster shows its keyspaces, partitions and nodes.
func TestShow(t *testing.T) {
	withFake(t, func(t *testing.T, client *kv.Client, cluster *admin.Client) {
		ctx := t.Context()
		info, err := cluster.Keyspace(ctx, "a")
		if err != nil || info.Hashed() || info.GCWindow != time.Minute ||
			info.State != admin.KeyspaceActive || info.Partitioning() != "range" {
			t.Errorf("the keyspace: %+v, %v", info, err)
		}
		all, err := cluster.Keyspaces(ctx)
		if err != nil || len(all) != 1 || all[0].Name != "a" || len(all[0].SplitAt) != 2 {
			t.Errorf("all keyspaces: %+v, %v", all, err)
		}
		parts, err := cluster.Partitions(ctx, "a")
		if err != nil || len(parts) != 3 || string(parts[1].Start) != "g" ||
			string(parts[1].End) != "t" || parts[2].End != nil || parts[0].Hash != -1 {
			t.Errorf("partitions: %+v, %v", parts, err)
		}
		if nodes, err := cluster.Nodes(ctx); err != nil || len(nodes) != 3 {
			t.Errorf("nodes: %+v, %v", nodes, err)
		}
		st, err := cluster.Status(ctx)
		if err != nil || st.Cluster != client.Cluster() || !st.Ready {
			t.Errorf("status: %+v, %v", st, err)
		}
	})
}

// Every error is a *kv.Error of a kind of package kv, and says which call it is of.
func TestErrors(t *testing.T) {
	withFake(t, func(t *testing.T, client *kv.Client, cluster *admin.Client) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		ctx := t.Context()
		check := func(op string, err error, kind error) {
			t.Helper()
			var e *kv.Error
			if !errors.As(err, &e) || !errors.Is(err, kind) || !strings.HasPrefix(e.Op, op) {
				t.Errorf("%s: %v; want %v", op, err, kind)
			}
		}
		_, err := cluster.Keyspace(ctx, "ghost")
		check("describe keyspace", err, kv.ErrKeyspaceNotFound)
		_, err = cluster.Partitions(ctx, "ghost")
		check("list partitions", err, kv.ErrKeyspaceNotFound)
		_, _, err = cluster.LiveTransactions(ctx, "ghost", 10)
		check("live transactions", err, kv.ErrKeyspaceNotFound)
		_, _, err = cluster.Transactions(ctx, "", 0)
		check("transactions", err, kv.ErrInvalidArgument)
		_, err = cluster.AbortTransaction(ctx, "no id")
		check("abort transaction", err, kv.ErrInvalidArgument)
		_, err = cluster.SplitPartition(ctx, "a", nil)
		check("split a partition", err, kv.ErrInvalidArgument)
		_, err = cluster.SetNodeStatus(ctx, 1, admin.NodeGone)
		check("set the status of node 1", err, kv.ErrInvalidArgument)
		_, err = cluster.LimitPlacement(ctx, admin.PlacementSettings{Operators: -1})
		check("set placement", err, kv.ErrInvalidArgument)
		_, err = cluster.Events(ctx, 0, 0, -1)
		check("list events", err, kv.ErrInvalidArgument)
		for op, call := range map[string]func(context.Context) error{
			"status":    func(ctx context.Context) error { _, err := cluster.Status(ctx); return err },
			"list keys": func(ctx context.Context) error { _, err := cluster.Keyspaces(ctx); return err },
			"latencies": func(ctx context.Context) error {
				_, err := cluster.NodeLatencies(ctx)
				return err
			},
		} {
			err := call(cancelled)
			check(op, err, context.Canceled)
			if !strings.Contains(err.Error(), "the call was cancelled") {
				t.Errorf("%s, cancelled: %v", op, err)
			}
		}
		client.Close()
		_, err = cluster.Nodes(ctx)
		check("list nodes", err, kv.ErrClosed)
	})
}
