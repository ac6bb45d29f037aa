package etcdapi

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
)

// bothWithUsers is a real etcd and ours, which are asked the same by the same users.
type bothWithUsers struct {
	*both
	*rand.Rand
	// tokens are those of etcd and of ours that users have got last, with their passwords; they may
	// be valid no more.
	tokens    map[string][2]string
	passwords map[string]string
}

func newBothWithUsers(
	t *testing.T, seed uint64, reach func(*served) *endpoint,
) *bothWithUsers {
	etcd := reference.Test(t, reference.Options{
		Args: []string{"--unsafe-no-fsync", "--bcrypt-cost", fmt.Sprint(bcrypt.MinCost)}})
	ours := serve(t, func(c *Config) { c.Passwords = passwords.Config{Cost: bcrypt.MinCost} })
	return &bothWithUsers{
		both: &both{t: t, etcd: connect(t, etcd.Endpoints()[0]), ours: reach(ours),
			revision: 1, answers: map[string]int{}},
		Rand:   rand.New(rand.NewPCG(seed, 0)),
		tokens: map[string][2]string{}, passwords: map[string]string{}}
}

// askAs asks both on behalf of a user, with the token that it has got last; "": without one.
func (b *bothWithUsers) askAs(user string, request proto.Message) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	of := [2]context.Context{ctx, ctx}
	if user != "" {
		field := rpctypes.TokenFieldNameGRPC
		prefix := ""
		if b.IntN(4) == 0 {
			field, prefix = rpctypes.TokenFieldNameSwagger, "Bearer "
		}
		for i := range of {
			of[i] = metadata.AppendToOutgoingContext(ctx, field, prefix+b.tokens[user][i])
		}
	}
	want, wantErr := b.etcd.call(of[0], request)
	got, gotErr := b.ours.call(of[1], request)
	b.done++
	b.answers[fmt.Sprintf("%T %v", request, status.Code(wantErr))]++
	if r, ok := request.(*pb.AuthenticateRequest); ok && wantErr == nil && gotErr == nil {
		b.tokens[r.Name] = [2]string{want.(*pb.AuthenticateResponse).Token,
			got.(*pb.AuthenticateResponse).Token}
		want.(*pb.AuthenticateResponse).Token, got.(*pb.AuthenticateResponse).Token = "", ""
	}
	for i, answer := range []proto.Message{want, got} {
		if [2]error{wantErr, gotErr}[i] != nil {
			continue
		}
		switch a := answer.(type) {
		case *pb.HashResponse:
			a.Hash = min(a.Hash, 1)
		case *pb.StatusResponse:
			header := a.Header
			proto.Reset(a)
			a.Header = header
		case *pb.MemberListResponse:
			a.Members = nil
		case *pb.WatchResponse:
			if !a.Canceled {
				a.Header = nil
			}
		}
	}
	if _, lists := request.(*pb.LeaseLeasesRequest); lists {
		if visible, differs := b.visibleLeases(of[0], wantErr); differs {
			want, wantErr = &pb.LeaseLeasesResponse{Header: &pb.ResponseHeader{Revision: b.revision},
				Leases: visible}, nil
			if a, ok := got.(*pb.LeaseLeasesResponse); ok {
				slices.SortFunc(a.Leases, func(x, y *pb.LeaseStatus) int { return cmp.Compare(x.ID, y.ID) })
			}
		}
	}
	b.compare(request, want, wantErr, got, gotErr)
	b.follow(request, want, wantErr)
	return wantErr
}

// visibleLeases are the leases that ours shows to a user of whom etcd knows, and who does not
// administer, by ascending id. etcd answers such a user with an error if there is a lease with a key
// that the user may not read, and with all leases otherwise. Ours answers with those leases that
// have keys and whose keys the user may read: etcd tells which these are, one by one.
func (b *bothWithUsers) visibleLeases(
	ctx context.Context, err error,
) (visible []*pb.LeaseStatus, differs bool) {
	b.t.Helper()
	if err != nil && status.Code(err) != codes.PermissionDenied {
		return nil, false
	}
	if _, err := b.etcd.call(ctx, &pb.HashRequest{}); err == nil {
		return nil, false // of an administrator, or nobody is authenticated
	}
	for id := range int64(someLeases) {
		answer, err := b.etcd.call(ctx, &pb.LeaseTimeToLiveRequest{ID: id + 1, Keys: true})
		if err == nil && len(answer.(*pb.LeaseTimeToLiveResponse).Keys) > 0 {
			visible = append(visible, &pb.LeaseStatus{ID: id + 1})
		}
	}
	return visible, true
}

// someLeases is up to which id there are leases.
const someLeases = 4

// log gets a user tokens.
func (b *bothWithUsers) log(user string) error {
	b.t.Helper()
	return b.askAs("", &pb.AuthenticateRequest{Name: user, Password: b.passwords[user]})
}

var (
	someUsers = []string{"root", "u", "v", "w"}
	someRoles = []string{"root", "r", "s", "t"}
)

func oneOf[T any](b *bothWithUsers, of []T) T { return of[b.IntN(len(of))] }

// span is a range of keys; a third of them are single keys. None is empty: whether that is
// permitted depends on the order of insertions into a tree in etcd.
func (b *bothWithUsers) span() (key, end []byte) {
	key = []byte(oneOf(b, []string{"a", "a\x00", "aa", "b", "c", "ca"}))
	if b.IntN(3) == 0 {
		return key, nil
	}
	end = []byte(oneOf(b, []string{"\x00", "aa", "b", "bb", "c", "d"}))
	if string(end) != "\x00" && string(key) >= string(end) {
		end = []byte("e")
	}
	return key, end
}

func (b *bothWithUsers) key() []byte {
	return []byte(oneOf(b, []string{"a", "aa", "b", "c", "ca"}))
}

// administration is a request that administers, now and then with something wrong.
func (b *bothWithUsers) administration() proto.Message {
	user, role := oneOf(b, append(someUsers, "", "x")), oneOf(b, append(someRoles, "", "x"))
	key, end := b.span()
	if b.IntN(4) == 0 {
		key, end = end, key // which are wrong, or a permission for one key, or for nothing
	}
	switch b.IntN(24) {
	case 0:
		return &pb.AuthEnableRequest{}
	case 1:
		if b.IntN(4) == 0 {
			return &pb.AuthDisableRequest{}
		}
		return &pb.AuthStatusRequest{}
	case 2, 3:
		if b.IntN(8) == 0 {
			return &pb.AuthUserAddRequest{Name: user, Options: &authpb.UserAddOptions{NoPassword: true}}
		}
		return &pb.AuthUserAddRequest{Name: user, Password: b.newPassword()}
	case 4:
		return &pb.AuthUserDeleteRequest{Name: user}
	case 5:
		return &pb.AuthUserChangePasswordRequest{Name: user, Password: b.newPassword()}
	case 6:
		return &pb.AuthUserGetRequest{Name: user}
	case 7:
		return &pb.AuthUserListRequest{}
	case 8, 9, 10:
		return &pb.AuthUserGrantRoleRequest{User: user, Role: role}
	case 11:
		return &pb.AuthUserRevokeRoleRequest{Name: user, Role: role}
	case 12, 13:
		return &pb.AuthRoleAddRequest{Name: role}
	case 14:
		return &pb.AuthRoleDeleteRequest{Role: role}
	case 15, 16:
		return &pb.AuthRoleGetRequest{Role: role}
	case 17:
		return &pb.AuthRoleListRequest{}
	case 18:
		return &pb.AuthRoleRevokePermissionRequest{Role: role, Key: key, RangeEnd: end}
	}
	r := &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{
		PermType: authpb.Permission_Type(b.IntN(3)), Key: key, RangeEnd: end}}
	if b.IntN(20) == 0 {
		r.Perm = nil
	}
	return r
}

func (b *bothWithUsers) newPassword() string {
	return oneOf(b, []string{"", "secret", "other", "a third one"})
}

func (b *bothWithUsers) operation() *pb.RequestOp {
	switch r := b.access().(type) {
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	}
	panic("no operation")
}

func (b *bothWithUsers) access() proto.Message {
	key, end := b.span()
	switch b.IntN(3) {
	case 0:
		return &pb.RangeRequest{Key: key, RangeEnd: end, Serializable: b.IntN(3) == 0,
			Revision: int64(b.IntN(2)) * b.revision}
	case 1:
		return &pb.PutRequest{Key: b.key(), Value: []byte("v"), PrevKv: b.IntN(4) == 0,
			Lease: int64(max(0, b.IntN(8)-4))}
	}
	return &pb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: b.IntN(4) == 0}
}

// use is a request that users make.
func (b *bothWithUsers) use() proto.Message {
	lease := int64(b.IntN(someLeases) + 1)
	key, end := b.span()
	switch b.IntN(20) {
	case 0, 1:
		return &pb.LeaseGrantRequest{ID: lease, TTL: 1000}
	case 2:
		return &pb.LeaseRevokeRequest{ID: lease}
	case 3:
		return &pb.LeaseTimeToLiveRequest{ID: lease, Keys: b.IntN(3) > 0}
	case 4:
		return &pb.LeaseKeepAliveRequest{ID: lease}
	case 5:
		return &pb.LeaseLeasesRequest{}
	case 6:
		return &pb.WatchCreateRequest{Key: key, RangeEnd: end, PrevKv: b.IntN(2) == 0}
	case 7:
		return oneOf(b, []proto.Message{&pb.CompactionRequest{Revision: b.revision - 5},
			&pb.HashRequest{}, &pb.StatusRequest{}, &pb.MemberListRequest{}, &pb.DefragmentRequest{},
			&pb.AlarmRequest{}, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE,
				Alarm: pb.AlarmType_NOSPACE},
			&pb.MemberAddRequest{PeerURLs: []string{"http://host"}},
			&pb.DowngradeRequest{Version: "x"}, &pb.WatchCreateRequest{}})
	case 8:
		return &streamed{&pb.RangeRequest{Key: key, RangeEnd: end}}
	case 9, 10, 11:
		txn := &pb.TxnRequest{}
		for range b.IntN(2) {
			key, end := b.span()
			txn.Compare = append(txn.Compare, &pb.Compare{Key: key, RangeEnd: end,
				Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{}})
		}
		if b.IntN(3) > 0 {
			txn.Success = append(txn.Success, b.operation())
		}
		if b.IntN(3) > 0 {
			txn.Failure = append(txn.Failure, b.operation())
		}
		if b.IntN(4) == 0 {
			txn = &pb.TxnRequest{Failure: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}}}
		}
		return txn
	}
	return b.access()
}

// begin enables authentication, with users that may do something.
func (b *bothWithUsers) begin() {
	b.t.Helper()
	for _, user := range someUsers {
		b.passwords[user] = "secret"
		if b.askAs("", &pb.AuthUserAddRequest{Name: user, Password: "secret"}) != nil {
			b.askAs("", &pb.AuthUserChangePasswordRequest{Name: user, Password: "secret"})
		}
	}
	for _, role := range someRoles {
		b.askAs("", &pb.AuthRoleAddRequest{Name: role})
	}
	for i, user := range someUsers {
		b.askAs("", &pb.AuthUserGrantRoleRequest{User: user, Role: someRoles[i]})
	}
	b.askAs("", &pb.AuthEnableRequest{})
	for _, user := range someUsers {
		b.log(user)
	}
}

// A real etcd and ours answer the same to whatever users ask, whoever they are and whatever becomes
// of their roles meanwhile.
func TestUsersLikeEtcd(t *testing.T) {
	b := newBothWithUsers(t, *likeEtcdSeed,
		func(s *served) *endpoint { return connect(t, s.address) })
	b.askAsUsers(*likeEtcdRequests)
}

// askAsUsers makes so many requests.
func (b *bothWithUsers) askAsUsers(requests int) {
	enabled, begun := false, 0
	for range requests {
		if !enabled && b.IntN(40) == 0 || b.done-begun > 400 {
			// Whatever was made of it, there is a root again.
			b.log("root")
			b.askAs("root", &pb.AuthDisableRequest{})
			b.begin()
			begun = b.done
		}
		user := oneOf(b, append(someUsers, "", "x", "root"))
		request := b.use()
		switch b.IntN(12) {
		case 0, 1, 2:
			request = b.administration()
			if b.IntN(2) == 0 {
				user = "root"
			}
		case 3:
			b.log(user)
			continue
		case 4:
			request = &pb.AuthenticateRequest{Name: user, Password: b.newPassword()}
		}
		err := b.askAs(user, request)
		if status.Code(err) == codes.Unauthenticated && b.IntN(2) == 0 {
			b.log(user)
		}
		switch r := request.(type) {
		case *pb.AuthUserAddRequest:
			if err == nil {
				b.passwords[r.Name] = r.Password
			}
		case *pb.AuthUserChangePasswordRequest:
			if err == nil {
				b.passwords[r.Name] = r.Password
			}
		}
		ctx := b.t.Context()
		now, err := pb.NewAuthClient(b.ours.connection).AuthStatus(ctx, &pb.AuthStatusRequest{})
		if err != nil {
			b.t.Fatal(err)
		}
		enabled = now.Enabled
	}
	b.t.Logf("seed %d: %d requests, answers: %v", *likeEtcdSeed, b.done, b.answers)
}
