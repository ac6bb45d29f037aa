package identity

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
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
		conn, err := grpc.NewClient(l.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		token, err := authenticateAt(t.Context(), oneServer{conn}, l.Addr().String(),
			&coordpb.AuthenticateRequest{Name: "u"})
		if status.Code(err) != want || token != "" {
			t.Errorf("%s: %q, %v", message, token, err)
		}
	}
}

// oneServer is the connection to the only member.
type oneServer struct{ conn *grpc.ClientConn }

func (oneServer) Servers() []string                       { return nil }
func (oneServer) Members(context.Context) []string        { return nil }
func (o oneServer) Conn(string) (*grpc.ClientConn, error) { return o.conn, nil }
