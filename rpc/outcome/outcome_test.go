package outcome

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// answering is a server whose answers are errors.
type answering struct {
	clusterpb.UnimplementedClusterServer
	with error
}

func (a *answering) MergePartition(
	context.Context, *clusterpb.MergePartitionRequest,
) (*clusterpb.MergePartitionResponse, error) {
	return nil, a.with
}

func (a *answering) ConfirmRecovery(
	context.Context, *clusterpb.ConfirmRecoveryRequest,
) (*clusterpb.ConfirmRecoveryResponse, error) {
	return nil, a.with
}

func (a *answering) SetNodeStatus(
	context.Context, *clusterpb.SetNodeStatusRequest,
) (*clusterpb.SetNodeStatusResponse, error) {
	return nil, a.with
}

func (a *answering) ListNodes(
	context.Context, *clusterpb.ListNodesRequest,
) (*clusterpb.ListNodesResponse, error) {
	return nil, a.with
}

// detailed returns a refusal with a detail.
func detailed(t *testing.T, code codes.Code, detail protoadapt.MessageV1) error {
	t.Helper()
	st, err := status.New(code, "no").WithDetails(detail)
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// A call is in doubt after an attempt that was sent and got no answer, if its method changes
// something. An answer that says that nothing was done leaves no doubt, and neither does a server
// that was not reached.
func TestDoubt(t *testing.T) {
	restore, merge, list := &clusterpb.ConfirmRecoveryRequest{}, &clusterpb.MergePartitionRequest{},
		&clusterpb.ListNodesRequest{}
	lost := status.Error(codes.Unavailable, "error reading from server: EOF")
	refused := status.Error(codes.NotFound, "there is no such thing")
	for _, c := range []struct {
		name    string
		request proto.Message
		answers []error
		unknown bool
	}{
		{"an answer", restore, []error{nil}, false},
		{"a refusal", restore, []error{refused}, false},
		{"a lost answer", restore, []error{lost}, true},
		{"a call that ended at the server", restore,
			[]error{status.Error(codes.Canceled, "context canceled")}, true},
		{"a member that has done nothing", restore,
			[]error{detailed(t, codes.Unavailable, &clusterpb.CoreHint{})}, false},
		{"a server that found no leader", restore,
			[]error{detailed(t, codes.Unavailable, &clusterpb.CoreTrouble{})}, false},
		{"a command that may be committed yet", restore,
			[]error{Unknown(codes.Unavailable, "the core", &clusterpb.CoreHint{})}, true},
		{"a refusal after a lost answer", restore, []error{lost, refused}, true},
		{"an answer after a lost one", restore, []error{lost, nil}, false},
		{"a lost answer of a call that is repeated safely", merge, []error{lost}, true},
		{"its refusal after a lost answer", merge, []error{lost, refused}, false},
		{"its refusal by a server that has not looked for the first attempt", merge,
			[]error{lost, status.Error(codes.ResourceExhausted, "no memory")}, true},
		{"a lost answer to a question", &clusterpb.SetNodeStatusRequest{DryRun: true},
			[]error{lost}, false},
		{"a lost answer of a read", list, []error{lost}, false},
	} {
		net := memnet.New()
		listener, err := net.Listen("s:1")
		if err != nil {
			t.Fatal(err)
		}
		a := &answering{}
		server := grpc.NewServer()
		clusterpb.RegisterClusterServer(server, a)
		go func() { _ = server.Serve(listener) }()
		conn, err := grpc.NewClient("passthrough:///s:1", grpc.WithContextDialer(net.Dialer("c")),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := clusterpb.NewClusterClient(conn)
		attempts := Of(c.request)
		for _, a.with = range c.answers {
			switch r := c.request.(type) {
			case *clusterpb.MergePartitionRequest:
				_, err = client.MergePartition(t.Context(), r, attempts.Option())
			case *clusterpb.ConfirmRecoveryRequest:
				_, err = client.ConfirmRecovery(t.Context(), r, attempts.Option())
			case *clusterpb.SetNodeStatusRequest:
				_, err = client.SetNodeStatus(t.Context(), r, attempts.Option())
			case *clusterpb.ListNodesRequest:
				_, err = client.ListNodes(t.Context(), r, attempts.Option())
			}
			attempts.Note(err)
		}
		got := attempts.Error(err)
		if IsUnknown(got) != c.unknown || (got == nil) != (err == nil) || !errors.Is(got, err) ||
			c.unknown && (status.Code(got) != status.Code(err) || !strings.Contains(got.Error(), Advice) &&
				!IsUnknown(err)) {
			t.Errorf("%s: %v", c.name, got)
		}
		_ = conn.Close()
		server.Stop()
	}
}

// A server that cannot be reached has done nothing.
func TestNotReached(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///s:1",
		grpc.WithContextDialer(memnet.New().Dialer("c")),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := &clusterpb.ConfirmRecoveryRequest{}
	attempts := Of(r)
	_, err = clusterpb.NewClusterClient(conn).ConfirmRecovery(t.Context(), r, attempts.Option())
	attempts.Note(err)
	if err := attempts.Error(err); status.Code(err) != codes.Unavailable || IsUnknown(err) {
		t.Errorf("a server that does not exist: %v", err)
	}
	// What a search for a server says of a call in doubt has a status, too.
	if err := Doubt(errors.New("no server could answer")); !IsUnknown(err) {
		t.Errorf("%v", err)
	}
}
