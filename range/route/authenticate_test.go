package route

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// A user needs no token of a server that says that authentication is not enabled. A server that
// refuses for another reason, such as a member without a vote, says nothing of that: another one is
// asked.
func TestOnlyDisabledNeedsNoToken(t *testing.T) {
	for message, want := range map[string]codes.Code{
		notEnabled: codes.OK,
		"etcdserver: rpc not supported for learner": codes.Unavailable,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.FailedPrecondition, message)
		}))
		go func() { _ = server.Serve(l) }()
		defer server.Stop()
		sender, err := New(Config{Endpoints: []string{l.Addr().String()}})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		token, err := sender.authenticateAt(t.Context(), l.Addr().String(),
			&coordpb.AuthenticateRequest{Name: "u"})
		if status.Code(err) != want || token != "" {
			t.Errorf("%s: %q, %v", message, token, err)
		}
	}
}
