package etcdapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// behind is the store of a member that has not applied everything that others have acknowledged:
// news is applied when the member makes sure that it is up to date.
type behind struct {
	*lone
	news atomic.Pointer[storepb.Command]
}

func (b *behind) Read(ctx context.Context) (*store.View, error) {
	if news := b.news.Swap(nil); news != nil {
		if _, err := b.Execute(ctx, news); err != nil {
			return nil, err
		}
	}
	return b.lone.Read(ctx)
}

// What a member answers is decided when it is up to date: with what was granted, ended, permitted
// and refused, and acknowledged elsewhere, before the call.
func TestAnswersAreUpToDate(t *testing.T) {
	revoked := store.ChangeAuth(nil, &storepb.AuthChange{Change: &storepb.AuthChange_RevokePermission{
		RevokePermission: &storepb.RolePermission{Role: "r",
			Permission: &storepb.Permission{Key: []byte("u/"), RangeEnd: []byte("u0")}}}})
	disabled := store.ChangeAuth(nil, &storepb.AuthChange{
		Change: &storepb.AuthChange_Disable{Disable: &storepb.AuthDisable{}}})
	denied := rpctypes.ErrPermissionDenied
	type clients struct {
		root, user, nobody *clientv3.Client
		// raw asks without a client of etcd's, which logs in again before each stream, and token is
		// that of the user.
		raw   *endpoint
		token string
	}
	for name, c := range map[string]struct {
		news *storepb.Command
		ask  func(context.Context, clients) error
		want error
	}{
		"a lease that was granted is listed": {store.Grant(7, 60_000),
			func(ctx context.Context, c clients) error {
				r, err := c.root.Leases(ctx)
				if err == nil && !slices.Contains(r.Leases, clientv3.LeaseStatus{ID: 7}) {
					err = errors.New("it is not")
				}
				return err
			}, nil},
		"a lease that has ended is not listed": {store.Revoke(1),
			func(ctx context.Context, c clients) error {
				r, err := c.root.Leases(ctx)
				if err == nil && slices.Contains(r.Leases, clientv3.LeaseStatus{ID: 1}) {
					err = errors.New("it is")
				}
				return err
			}, nil},
		"a lease whose keys may not be read any more": {revoked,
			func(ctx context.Context, c clients) error {
				r, err := c.user.Leases(ctx)
				if err == nil && len(r.Leases) > 0 {
					err = errors.New("it is listed")
				}
				return err
			}, nil},
		"a renewal that is not permitted any more": {revoked,
			func(ctx context.Context, c clients) error {
				_, err := c.raw.call(withToken(ctx, c.token), &pb.LeaseKeepAliveRequest{ID: 1})
				return rpctypes.Error(err)
			}, denied},
		"a time to live, with keys, that is not permitted any more": {revoked,
			func(ctx context.Context, c clients) error {
				_, err := c.user.TimeToLive(ctx, 1, clientv3.WithAttachedKeys())
				return err
			}, denied},
		"a watch that is not permitted any more": {revoked,
			func(ctx context.Context, c clients) error {
				r, err := c.raw.call(withToken(ctx, c.token), &pb.WatchCreateRequest{Key: []byte("u/1")})
				if err == nil && strings.Contains(r.(*pb.WatchResponse).CancelReason,
					rpctypes.ErrorDesc(denied)) {
					return denied
				}
				return err
			}, denied},
		"a lease for a client that needs no user any more": {disabled,
			func(ctx context.Context, c clients) error {
				_, err := c.nobody.Grant(ctx, 60)
				return err
			}, nil},
		"a renewal for a client that needs no user any more": {disabled,
			func(ctx context.Context, c clients) error {
				_, err := c.nobody.KeepAliveOnce(ctx, 1)
				return err
			}, nil},
		"alarms for a client that needs no user any more": {disabled,
			func(ctx context.Context, c clients) error {
				_, err := c.nobody.AlarmList(ctx)
				return err
			}, nil},
		"status for a client that needs no user any more": {disabled,
			func(ctx context.Context, c clients) error {
				_, err := c.nobody.Status(ctx, c.nobody.Endpoints()[0])
				return err
			}, nil},
		"a put with a token that is not needed any more": {disabled,
			func(ctx context.Context, c clients) error {
				_, err := pb.NewKVClient(c.nobody.ActiveConnection()).Put(withToken(ctx, "none"),
					&pb.PutRequest{Key: []byte("k")})
				return err
			}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &behind{}
			g := serveUsers(t, func(c *Config) {
				b.lone = c.Store.(*lone)
				c.Store = b
			})
			ctx := t.Context()
			all := clients{g.as(t, "root", "secret"), g.as(t, "u", "pw"), g.Client,
				connect(t, g.address), g.token(t, "u", "pw")}
			if _, err := pb.NewLeaseClient(all.root.ActiveConnection()).LeaseGrant(ctx,
				&pb.LeaseGrantRequest{ID: 1, TTL: 60}); err != nil {
				t.Fatal(err)
			}
			if _, err := all.root.Put(ctx, "u/1", "", clientv3.WithLease(1)); err != nil {
				t.Fatal(err)
			}
			b.news.Store(c.news)
			if err := c.ask(ctx, all); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}
