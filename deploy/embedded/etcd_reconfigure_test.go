package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// TestStrictReconfigurationLikeEtcd: of three members one is stopped. A real etcd and Tidemark
// refuse the same changes of the members with the same errors, and do the others.
func TestStrictReconfigurationLikeEtcd(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		etcd := reference.Test(t, reference.Options{Members: 3,
			Args: []string{"--unsafe-no-fsync"}})
		// A change that is under way when the leader is killed may never be answered by etcd.
		leader, err := etcd.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := etcd.Endpoints()
		order := []string{at[leader], at[(leader+1)%3], at[(leader+2)%3]}
		testStrictReconfiguration(t, order, func() {
			if err := etcd.Kill((leader + 2) % 3); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("tidemark", func(t *testing.T) {
		t.Parallel()
		cluster := startEtcd(t, nil)
		testStrictReconfiguration(t, cluster.Endpoints()[:3], func() {
			if err := cluster.Server(2).Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// testStrictReconfiguration changes the three members at the addresses, which all have a vote. stop
// stops the last one.
func testStrictReconfiguration(t *testing.T, at []string, stop func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	client := etcdClient(t, nil, at[0])
	// id is the id of the member at an address.
	id := func(i int) uint64 {
		list, err := client.MemberList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n := slices.IndexFunc(list.Members, func(m *pb.Member) bool {
			return slices.Contains(m.ClientURLs, "http://"+at[i])
		})
		return list.Members[n].ID
	}
	ids := [3]uint64{id(0), id(1), id(2)}
	const nowhere = "http://127.0.0.1:1"
	// answers waits until a change is answered with an error, or with nil. Members need a moment to
	// find that another one is gone, and etcd takes one for well after five seconds.
	answers := func(what string, want error, change func() error) {
		t.Helper()
		var told string
		awaitTrue(t, what, func() bool {
			last := change()
			if last == nil && want != nil {
				t.Fatalf("%s: done; want %v", what, want)
			}
			done := last == nil && want == nil || want != nil && errors.Is(last, want)
			if text := fmt.Sprint(last); !done && text != told {
				t.Logf("%s: %s", what, text)
				told = text
			}
			return done
		})
	}
	remove := func(id uint64) func() error {
		return func() error { _, err := client.MemberRemove(ctx, id); return err }
	}
	answers("an unknown member is removed", rpctypes.ErrMemberNotFound, remove(1))
	answers("a voter is promoted", rpctypes.ErrMemberNotLearner, func() error {
		_, err := client.MemberPromote(ctx, ids[1])
		return err
	})
	stop()
	answers("a voter is added beside a stopped one", rpctypes.ErrUnhealthy, func() error {
		_, err := client.MemberAdd(ctx, []string{nowhere})
		return err
	})
	answers("a learner is added beside a stopped voter", rpctypes.ErrUnhealthy, func() error {
		_, err := client.MemberAddAsLearner(ctx, []string{nowhere})
		return err
	})
	answers("one of two that answer is removed", rpctypes.ErrUnhealthy, remove(ids[1]))
	answers("the stopped one is removed", nil, remove(ids[2]))
	answers("it is removed again", rpctypes.ErrMemberNotFound, remove(ids[2]))
	answers("one of two is removed", nil, remove(ids[1]))
	answers("the last one is removed", rpctypes.ErrMemberNotEnoughStarted, remove(ids[0]))
	list, err := client.MemberList(ctx)
	if err != nil || len(list.Members) != 1 {
		t.Errorf("the members are %v, %v", list, err)
	}
}
