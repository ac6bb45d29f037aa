package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/kv/coord/direct"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
)

// A call past gRPC is refused as one by gRPC is, with the same audit.
func TestUsersPastGRPC(t *testing.T) {
	g := serveUsers(t, nil)
	e, past := connectPastGRPC(t, g.served)
	token := g.token(t, "u", "pw")
	ask := func(token string, request *pb.RangeRequest) error {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
		}
		_, err := pb.NewKVClient(past).Range(ctx, request)
		_, want := pb.NewKVClient(past.ClientConnInterface).Range(ctx, request)
		if status.Code(err) != status.Code(want) ||
			status.Convert(err).Message() != status.Convert(want).Message() {
			t.Errorf("%v past gRPC, %v by gRPC", err, want)
		}
		lines := g.log.lines(t)
		if err != nil && len(lines) == 2 {
			for _, line := range lines {
				if address, _ := line["address"].(string); !strings.HasPrefix(address, "127.0.0.1:") {
					t.Errorf("%v", line)
				}
				delete(line, "address")
				delete(line, "time")
			}
			if a, b := fmt.Sprint(lines[0]), fmt.Sprint(lines[1]); a != b {
				t.Errorf("the audit says %s past gRPC, %s by gRPC", a, b)
			}
		} else if err != nil {
			t.Errorf("%v has %d lines in the audit", err, len(lines))
		}
		return rpctypes.Error(err)
	}
	own, others := &pb.RangeRequest{Key: []byte("u/a")}, &pb.RangeRequest{Key: []byte("v")}
	for _, c := range []struct {
		token   string
		request *pb.RangeRequest
		want    error
	}{
		{token, own, nil}, {token, others, rpctypes.ErrPermissionDenied},
		{"", own, rpctypes.ErrUserEmpty},
		{"x", own, rpctypes.ErrInvalidAuthToken}, {token + "x", own, rpctypes.ErrInvalidAuthToken},
	} {
		if err := ask(c.token, c.request); !errors.Is(err, c.want) {
			t.Errorf("%v, not %v", err, c.want)
		}
	}
	root := g.as(t, "root", "secret")
	if _, err := root.RoleRevokePermission(t.Context(), "r", "u/", "u0"); err != nil {
		t.Fatal(err)
	}
	g.log.lines(t)
	if err := ask(token, own); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("what was revoked: %v", err)
	}
	if _, err := root.UserDelete(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	g.log.lines(t)
	if err := ask(token, own); !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		t.Errorf("a user that is no more: %v", err)
	}
	if _, err := root.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.log.lines(t)
	for _, token := range []string{"", token, "x"} {
		if err := ask(token, others); err != nil {
			t.Errorf("without users: %v", err)
		}
	}
	if past.made.Load() == 0 || e.connection != past {
		t.Error("no call went past gRPC")
	}
}

// etcd's client goes on past gRPC when its token ends, users are disabled and enabled again, and an
// application checks the passwords of others with it; and its search for a server is not audited.
func TestClientOfAUserPastGRPC(t *testing.T) {
	g := serveUsers(t, nil)
	address := serveBeside(t, g.served)
	calls := direct.New(direct.Config{})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Username: "u",
		Password: "pw", Logger: zap.NewNop(), DialOptions: calls.DialOptions()})
	if err != nil {
		t.Fatal(err)
	}
	calls.Begin(client.Endpoints)
	t.Cleanup(func() {
		calls.Close()
		_ = client.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for calls.Server() == "" {
		if _, err := client.Get(ctx, "u/a"); err != nil {
			t.Fatal(err)
		}
	}
	if lines := g.log.lines(t); len(lines) > 0 {
		t.Errorf("%v", lines)
	}
	works := func(when string) {
		t.Helper()
		if _, err := client.Put(ctx, "u/a", when); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if got, err := client.Get(ctx, "u/a"); err != nil || string(got.Kvs[0].Value) != when {
			t.Errorf("%s: %v, %v", when, got, err)
		}
		if calls.Server() != address {
			t.Errorf("%s: called at %q", when, calls.Server())
		}
	}
	denied := func(when string) {
		t.Helper()
		if _, err := client.Put(ctx, "v", "x"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("%s: %v", when, err)
		}
	}
	works("at first")
	denied("at first")
	g.clock.step(2 * authorize.TokenTTL)
	works("when its token has ended")
	// Another user is not the client's, whatever the password is good for.
	if _, err := client.Authenticate(ctx, "root", "secret"); err != nil {
		t.Fatal(err)
	}
	denied("after an application has checked a password")
	root := g.as(t, "root", "secret")
	if _, err := root.AuthDisable(ctx); err != nil {
		t.Fatal(err)
	}
	works("without users")
	if _, err := client.Put(ctx, "v", "x"); err != nil {
		t.Errorf("without users: %v", err)
	}
	if _, err := g.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	works("with users again")
	denied("with users again")
}
