package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func written(key, value string) *storepb.Command {
	return store.If(nil, []*storepb.Op{store.Put([]byte(key), []byte(value))}, nil)
}

// Commands, reads and renewals that come in at a member that does not lead are taken to the one
// that does, also when that changes meanwhile.
func TestMembersForwardToTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, _ *coreclient.Client) {
		second := c.found(0)
		follower := second.members[2].store
		result, err := follower.Execute(t.Context(), store.Grant(7, 60_000))
		if err != nil || result.Code != storepb.Code_OK {
			t.Fatal(result, err)
		}
		if term, err := follower.Renew(t.Context(), 7); err != nil || term != time.Minute {
			t.Fatal(term, err)
		}
		time.Sleep(10 * time.Second) // virtual
		if info, err := follower.TimeToLive(t.Context(), 7); err != nil || info.Left != 50*time.Second {
			t.Fatal(info, err)
		}
		if _, err := follower.Renew(t.Context(), 8); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Fatal(err)
		}
		for i := range 20 {
			if i%5 == 4 {
				second.elect(second.members[i%2])
			}
			if _, err := follower.Execute(t.Context(), written("k", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			v, err := follower.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if kv, err := v.Get([]byte("k")); err != nil || string(kv.Value) != fmt.Sprint(i) ||
				kv.Version != uint64(i+1) {
				t.Fatal(i, kv, err)
			}
		}
	})
}

// A member that does nothing says so, so that it can be told from a call of which it is not known
// what it did.
func TestRefusalsOfMembersAreKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, _ *coreclient.Client) {
		peers := func() *coordination.Peers {
			return &coordination.Peers{Cluster: testCluster, Conn: c.dialers[len(c.dialers)-1].Conn,
				Resolve: func(id uint64) (string, bool) { return fmt.Sprintf("core%d:1", id), id < 9 }}
		}
		c.client("other")
		var notLeader *store.NotLeaderError
		// It is not open yet.
		if _, err := peers().Index(t.Context(), 1); !errors.As(err, &notLeader) ||
			notLeader.Leader != 0 {
			t.Fatal(err)
		}
		second := c.found(0)
		named := written("k", "v")
		named.Origin, named.Request = 5, 1
		command, err := proto.Marshal(named)
		if err != nil {
			t.Fatal(err)
		}
		p := peers()
		for _, x := range []struct{ member, term uint64 }{{2, second.term}, {1, second.term - 1}} {
			_, err := p.Execute(t.Context(), second.members[x.member-1].id, x.term,
				append([]byte{1}, command...)) // of the first format
			if !errors.As(err, &notLeader) || notLeader.Leader != 1 || notLeader.Term != second.term {
				t.Errorf("%v: %v", x, err)
			}
		}
		if _, err := p.RenewAll(t.Context(), 2, []int64{7}); !errors.As(err, &notLeader) ||
			notLeader.Leader != 1 {
			t.Error(err)
		}
		if _, err := p.TimeToLive(t.Context(), 3, 7); !errors.As(err, &notLeader) {
			t.Error(err)
		}
		if _, err := p.TimeToLive(t.Context(), 1, 7); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Error(err)
		}
		// What says nothing of what was done.
		c.members[2].grpc.Stop()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, stopped := p.Execute(limited, 3, second.term, command)
		_, unknown := p.Index(limited, 9)
		_, malformed := p.Execute(limited, 1, second.term, []byte("nonsense"))
		for name, err := range map[string]error{"stopped": stopped, "unknown": unknown,
			"malformed": malformed} {
			if err == nil || errors.As(err, &notLeader) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.Cluster++
		if _, err := p.Index(t.Context(), 1); status.Code(err) != codes.FailedPrecondition ||
			errors.As(err, &notLeader) {
			t.Errorf("another cluster: %v", err)
		}
	})
}
