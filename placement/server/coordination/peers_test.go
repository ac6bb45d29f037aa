package coordination

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A leader of an older version, which renews one lease at a time, renews as many as one question
// may be about within the second that the question has.
func TestRenewalsAtAnOlderLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases, missing, refused = 4096, 100, 5000
		var mu sync.Mutex
		var running, most int
		answer := func(ctx context.Context, method string, request, response any, _ *grpc.ClientConn,
			_ grpc.UnaryInvoker, _ ...grpc.CallOption,
		) error {
			if method != clusterpb.Coordination_Renew_FullMethodName {
				return status.Error(codes.Unimplemented, "unknown method")
			}
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			select {
			case <-time.After(10 * time.Millisecond): // virtual
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
			switch lease := request.(*clusterpb.CoordinationLeaseRequest).Lease; lease {
			case missing:
				return status.Error(codes.NotFound, "no such lease")
			case refused:
				return status.Error(codes.ResourceExhausted, "too much")
			default:
				response.(*clusterpb.CoordinationLeaseResponse).Nanoseconds = lease
			}
			return nil
		}
		conn, err := grpc.NewClient("passthrough:///old", grpc.WithUnaryInterceptor(answer),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		p := &Peers{Cluster: 0xc1,
			Conn:    func(string) (*grpc.ClientConn, error) { return conn, nil },
			Resolve: func(uint64) (string, bool) { return "old", true }}
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ids := make([]int64, leases)
		for i := range ids {
			ids[i] = int64(i + 1)
		}
		terms, err := p.RenewAll(limited, 1, ids)
		if err != nil || len(terms) != leases {
			t.Fatal(len(terms), err)
		}
		for i, id := range ids {
			if want := time.Duration(id); terms[i] != want && (id != missing || terms[i] != 0) {
				t.Fatalf("lease %d has a term of %d", id, terms[i])
			}
		}
		if most > renewedAtOnce {
			t.Errorf("%d renewals at a time", most)
		}
		_, err = p.RenewAll(t.Context(), 1, []int64{1, refused, 2})
		if status.Code(err) != codes.ResourceExhausted || errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}
