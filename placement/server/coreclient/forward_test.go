package coreclient

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A call that is passed on follows a hint to the leader, is marked as passed on, has the same token
// in all attempts, and gives nothing of an attempt that failed.
func TestForwarding(t *testing.T) {
	var asked []string
	tokens := map[uint64]bool{}
	conn := func(address string) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithUnaryInterceptor(func(ctx context.Context, _ string, request, response any,
				_ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
				asked = append(asked, address)
				tokens[request.(*clusterpb.CreateKeyspaceRequest).Token] = true
				if sent, _ := metadata.FromOutgoingContext(ctx); len(sent[forwardedHeader]) != 1 {
					t.Errorf("sent with %v", sent)
				}
				answer := response.(*clusterpb.CreateKeyspaceResponse)
				if answer.Keyspace != nil {
					t.Error("something is left of another attempt")
				}
				answer.Keyspace = &clusterpb.Keyspace{Name: address}
				if address != "b:1" {
					return hint.Error(codes.FailedPrecondition, "does not lead",
						&clusterpb.CoreHint{Leader: "b:1"})
				}
				return nil
			}))
	}
	c := New(Config{Core: []string{"a:1"}, Conn: conn})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := c.CreateKeyspace(ctx, &clusterpb.CreateKeyspaceRequest{Name: "x"})
	if err != nil || r.Keyspace.GetName() != "b:1" || len(asked) != 2 || asked[0] != "a:1" {
		t.Fatalf("%v, %v; asked %v", r, err, asked)
	}
	if len(tokens) != 1 || tokens[0] {
		t.Errorf("its tokens are %v", tokens)
	}
	if _, err := c.FollowTable(ctx); status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream is passed on: %v", err)
	}
}
