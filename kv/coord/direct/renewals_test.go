package direct_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// The first stream is opened past gRPC already; the server is asked once whether it knows how.
// Renewals that come in a burst share calls, and each is answered in its order.
func TestRenewalsShareCalls(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		stream := c.open(t)
		if md, err := stream.Header(); err != nil || len(md) > 0 {
			t.Fatalf("header %v, %v", md, err)
		}
		ids, terms := numbered(1, 5000, 0)
		go func() {
			for _, id := range ids {
				if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
					t.Error(err)
				}
			}
		}()
		receive(t, stream, terms, ids...)
		other := c.open(t)
		begun := time.Now()
		for _, id := range ids[:10] { // one that waits for each answer never waits for others
			send(t, other, id)
			receive(t, other, terms, id)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("10 renewals, one after the other, took %s", took)
		}
		asked, streams := f.take()
		if streams > 0 || slices.Index(asked, 0) != 0 || slices.Index(asked[1:], 0) >= 0 {
			t.Fatalf("%d streams of gRPC, calls for %v leases", streams, asked)
		}
		if n := len(asked) - 11; n > 100 || slices.Max(asked) > coordpb.MaxRenewed {
			t.Errorf("%d calls for %d renewals, of at most %d", n, len(ids), slices.Max(asked))
		}
	})
}

// While no answer is received, a bounded number of renewals is taken.
func TestRenewalsAreBounded(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := c.LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sent, ended := 0, make(chan error, 1)
		go func() {
			for {
				if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}); err != nil {
					ended <- err
					return
				}
				sent++
			}
		}()
		synctest.Wait()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("sending: %v", err)
		}
		if most := 4 * coordpb.MaxRenewed; sent < coordpb.MaxRenewed || sent > most {
			t.Errorf("%d were taken, want at most %d", sent, most)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Canceled {
			t.Errorf("receiving: %v", err)
		}
	})
}

// A server that does not know RenewAll renews by gRPC. It is asked again later, and then it knows.
func TestRenewalsOfOlderServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{net: memnet.New()}
		stop := f.serve(t, false)
		c := f.client(t)
		defer c.close(t)
		ids, terms := numbered(1, 3, 1)
		for range 2 {
			stream := c.open(t)
			send(t, stream, ids...)
			receive(t, stream, terms, ids...)
		}
		if asked, streams := f.take(); streams != 2 || len(asked) > 0 || c.Server() != "s:1" {
			t.Fatalf("%d streams, asked %v, calls go to %q", streams, asked, c.Server())
		}
		stop()
		defer f.serve(t, true)()
		time.Sleep(2 * time.Minute)
		stream := c.open(t)
		send(t, stream, ids...)
		_, terms = numbered(1, 3, 0)
		receive(t, stream, terms, ids...)
		if _, streams := f.take(); streams > 0 {
			t.Errorf("%d streams of gRPC", streams)
		}
	})
}

// A server that is stopped, and one that is of an older version now, end the stream. Another one is
// opened as what it is then.
func TestRenewalsAfterServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{net: memnet.New()}
		stop := f.serve(t, true)
		c := f.client(t)
		defer c.close(t)
		stream := c.open(t)
		send(t, stream, 7)
		receive(t, stream, map[int64]int64{7: 7}, 7)
		stop()
		send(t, stream, 7)
		fails(t, stream, codes.Unavailable)

		stop = f.serve(t, true)
		time.Sleep(time.Minute)
		stream = c.open(t)
		send(t, stream, 7)
		receive(t, stream, map[int64]int64{7: 7}, 7)
		stop()
		defer f.serve(t, false)()
		time.Sleep(time.Minute)
		send(t, stream, 7)
		fails(t, stream, codes.Unavailable)
		time.Sleep(time.Second)
		stream = c.open(t)
		send(t, stream, 7)
		receive(t, stream, map[int64]int64{7: 8}, 7)
	})
}

// A server that does not answer ends the stream in time, and so does one that says that its time is
// over.
func TestRenewalsOfSilentServer(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		for _, late := range []time.Duration{0, time.Hour} {
			stream := c.open(t)
			f.with(func(ctx context.Context, _ []int64) (*coordpb.RenewAllResponse, error) {
				<-ctx.Done()
				time.Sleep(late)
				return nil, status.FromContextError(ctx.Err()).Err()
			})
			begun := time.Now()
			send(t, stream, 1)
			fails(t, stream, codes.Unavailable)
			if took := time.Since(begun); took > 6*time.Second {
				t.Errorf("it took %s", took)
			}
			f.with(nil)
			time.Sleep(time.Minute) // the server is found again
		}
	})
}

// A call that is refused ends the stream with what the server says: also behind leases that were
// renewed.
func TestRenewalsRefused(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		ids, terms := numbered(1, 5, 0)
		for _, refused := range []bool{true, false} {
			stream := c.open(t)
			f.with(func(_ context.Context, leases []int64) (*coordpb.RenewAllResponse, error) {
				i := slices.Index(leases, 3)
				switch {
				case !refused && i == 0:
					return nil, rpctypes.ErrGRPCPermissionDenied
				case i < 0:
					return &coordpb.RenewAllResponse{Terms: leases}, nil
				case i == 0:
					return &coordpb.RenewAllResponse{Refusal: &coordpb.RenewalRefusal{
						Code: int32(codes.PermissionDenied), Message: "no"}}, nil
				}
				return &coordpb.RenewAllResponse{Terms: leases[:i], Refusal: &coordpb.RenewalRefusal{
					Code: int32(codes.PermissionDenied), Message: "no"}}, nil
			})
			send(t, stream, ids...)
			receive(t, stream, terms, 1, 2)
			fails(t, stream, codes.PermissionDenied)
		}
		if c.Server() == "" {
			t.Error("a refusal has a server called no more")
		}
	})
}

// Answers that cannot be are errors, and nothing else.
func TestRenewalsWrongAnswers(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		for _, answer := range []*coordpb.RenewAllResponse{
			{}, {Terms: []int64{1, 2, 3}}, {Terms: []int64{1}},
			{Terms: []int64{1}, Refusal: &coordpb.RenewalRefusal{}},
		} {
			stream := c.open(t)
			f.with(func(_ context.Context, leases []int64) (*coordpb.RenewAllResponse, error) {
				if leases[0] == 1 {
					return &coordpb.RenewAllResponse{Terms: leases}, nil
				}
				return answer, nil
			})
			send(t, stream, 1)
			receive(t, stream, map[int64]int64{1: 1}, 1)
			// While a call is under way two more come, which share the next.
			hold, held := make(chan struct{}), make(chan struct{})
			f.with(func(_ context.Context, leases []int64) (*coordpb.RenewAllResponse, error) {
				if leases[0] == 1 {
					close(held)
					<-hold
					return &coordpb.RenewAllResponse{Terms: leases}, nil
				}
				return answer, nil
			})
			send(t, stream, 1)
			<-held
			send(t, stream, 2, 3)
			close(hold)
			receive(t, stream, map[int64]int64{1: 1}, 1)
			fails(t, stream, codes.Internal)
		}
	})
}

// After CloseSend what was sent is answered, and then the stream ends.
func TestRenewalsCloseSend(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		stream := c.open(t)
		ids, terms := numbered(1, 1000, 0)
		send(t, stream, ids...)
		for range 2 {
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("sending after CloseSend: %v", err)
		}
		receive(t, stream, terms, ids...)
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		<-stream.Context().Done()
		empty := c.open(t)
		if err := empty.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := empty.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end of an empty one: %v", err)
		}
	})
}

// Close ends streams whether or not anything is under way, and waits for them; later ones go by
// gRPC.
func TestRenewalsClose(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		idle, unread, waiting := c.open(t), c.open(t), c.open(t)
		for range 4 {
			send(t, unread, 1)
			synctest.Wait()
		}
		f.with(func(ctx context.Context, _ []int64) (*coordpb.RenewAllResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		send(t, waiting, 1)
		synctest.Wait()
		c.Calls.Close()
		fails(t, idle, codes.Unavailable)
		fails(t, waiting, codes.Unavailable)
		var err error
		for err == nil {
			_, err = unread.Recv()
		}
		fails(t, unread, codes.Unavailable)
		f.take()
		stream := c.open(t)
		send(t, stream, 1)
		receive(t, stream, map[int64]int64{1: 2}, 1)
		if _, streams := f.take(); streams != 1 {
			t.Errorf("%d streams of gRPC", streams)
		}
	})
}

// A stream's context ends it; one that has ended opens none.
func TestRenewalsContext(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		for code, end := range map[codes.Code]func(context.Context) (context.Context, func()){
			codes.Canceled: func(ctx context.Context) (context.Context, func()) {
				return context.WithCancel(ctx)
			},
			codes.DeadlineExceeded: func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				return ctx, func() { time.Sleep(2 * time.Second); cancel() }
			},
		} {
			ctx, cancel := end(t.Context())
			stream, err := c.LeaseKeepAlive(ctx)
			if err != nil {
				t.Fatal(err)
			}
			send(t, stream, 1)
			receive(t, stream, map[int64]int64{1: 1}, 1)
			cancel()
			fails(t, stream, code)
			if _, err := c.LeaseKeepAlive(ctx); status.Code(err) != code {
				t.Errorf("opening: %v, want the code %s", err, code)
			}
		}
	})
}

// Calls do not demand a leader where the stream does: they wait for one.
func TestRenewalsWaitForLeader(t *testing.T) {
	withFake(t, true, func(t *testing.T, f *fake, c *client) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), rpctypes.MetadataRequireLeaderKey,
			rpctypes.MetadataHasLeader)
		demands := make(chan bool, 2)
		f.with(func(ctx context.Context, leases []int64) (*coordpb.RenewAllResponse, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			demands <- len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0
			return &coordpb.RenewAllResponse{Terms: leases}, nil
		})
		stream, err := c.LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		send(t, stream, 1)
		receive(t, stream, map[int64]int64{1: 1}, 1)
		if opening, renewal := <-demands, <-demands; !opening || renewal {
			t.Errorf("a leader is demanded at the opening: %v, for a renewal: %v", opening, renewal)
		}
	})
}
