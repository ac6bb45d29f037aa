package limit

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// LargeAnswerBytes is from how many bytes on the answer of a call is large.
	LargeAnswerBytes = 64 << 10
	// answersGranted is what each principal may have of the large answers of a server that are on
	// their way whatever its share. One answer can be half of all.
	answersGranted = 8 << 20
	// answersAgain is how often a message of a stream that waits for room asks for it, and
	// answersWait for how long.
	answersAgain = 10 * time.Millisecond
	answersWait  = 30 * time.Second
)

// ResponseBudget bounds the bytes of large answers of calls that are on their way to clients. gRPC
// takes an answer over and sends it as fast as the client reads, so a call is over long before its
// answer has gone: the bytes count until they are sent, or their connection has gone. Principals
// share them (package quota). An answer that is larger than what a principal can ever have is let
// through while no other such one is on its way, and counts as that: so other principals keep their
// share meanwhile. Safe for concurrent use.
type ResponseBudget struct {
	bytes *quota.Bytes
	// largest: an answer larger than bytes.Most is on its way.
	largest atomic.Bool
}

// NewResponseBudget makes the bound of a server, in bytes.
func NewResponseBudget(limit int64) *ResponseBudget {
	return ResponseBudgetOf(quota.NewBytes(limit, answersGranted))
}

// ResponseBudgetOf makes a bound of bytes that are shared as they say.
func ResponseBudgetOf(bytes *quota.Bytes) *ResponseBudget { return &ResponseBudget{bytes: bytes} }

// Limit is how many bytes may be on their way.
func (a *ResponseBudget) Limit() int64 { return a.bytes.Limit() }

// Held is how many bytes are on their way.
func (a *ResponseBudget) Held() int64 { return a.bytes.Held() }

// Bound is the answer of a call, counted. ResourceExhausted says that too much is on its way to the
// principal already. What is small, or goes no further than this process, is the answer itself. The
// answer is to be handed to gRPC, with Codec, or see Leaves.
func (a *ResponseBudget) Bound(ctx context.Context, answer proto.Message, size int) (any, error) {
	if !counts(ctx, size) {
		return answer, nil
	}
	of := authn.PrincipalOfCall(ctx)
	if int64(size) > a.bytes.Most() {
		if !a.largest.CompareAndSwap(false, true) {
			return nil, a.full(codes.ResourceExhausted)
		}
		most := a.bytes.Most()
		a.bytes.Force(of, most)
		b := newBounded(a.bytes, of, answer, int(most))
		b.claim.largest = &a.largest
		return b, nil
	}
	if !a.bytes.Take(of, int64(size)) {
		return nil, a.full(codes.ResourceExhausted)
	}
	return newBounded(a.bytes, of, answer, size), nil
}

// Room says whether any more may be on its way to the principal of a call, before the size of the
// answer is known: nil, or ResourceExhausted. It takes nothing.
func (a *ResponseBudget) Room(ctx context.Context) error {
	if counts(ctx, LargeAnswerBytes) && !a.bytes.Take(authn.PrincipalOfCall(ctx), 0) {
		return a.full(codes.ResourceExhausted)
	}
	return nil
}

// Count is Bound for the answer of a call that has had an effect: it counts, and is not refused.
func (a *ResponseBudget) Count(ctx context.Context, answer proto.Message, size int) any {
	if !counts(ctx, size) {
		return answer
	}
	of := authn.PrincipalOfCall(ctx)
	a.bytes.Force(of, int64(size))
	return newBounded(a.bytes, of, answer, size)
}

// Wait is Bound for a message of a stream: it waits until there is room. If there is none for long,
// the error is Unavailable, after which clients begin the stream again where it was.
func (a *ResponseBudget) Wait(ctx context.Context, message proto.Message, size int) (any, error) {
	for began := time.Now(); ; {
		bounded, err := a.Bound(ctx, message, size)
		switch {
		case err == nil:
			return bounded, nil
		case time.Since(began) > answersWait:
			return nil, a.full(codes.Unavailable)
		}
		if err := backoff.Sleep(ctx, answersAgain); err != nil {
			return nil, err
		}
	}
}

// leaves marks contexts.
type leaves struct{}

// Leaves is the context of a call that is served in this process, and whose answer goes to a client
// in another way than by gRPC: so it counts if it is large. What Bound, Count and Wait return is
// then to be told by Becomes and Sent what becomes of it. The context needs the client's peer.Peer.
func Leaves(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaves{}, true)
}

// counts says whether an answer of a size counts: it is large, and leaves this process.
func counts(ctx context.Context, size int) bool {
	return size >= LargeAnswerBytes &&
		(grpc.ServerTransportStreamFromContext(ctx) != nil || ctx.Value(leaves{}) != nil)
}

func (a *ResponseBudget) full(code codes.Code) error {
	return status.Errorf(code, "etcdserver: too many requests: answers of %d bytes are on their way "+
		"to clients that have not read them; ask again later, or for less at a time", a.bytes.Held())
}

// bounded is a message with the bytes that it has taken.
type bounded struct {
	proto.Message
	claim *Claim
}

// Becomes says that the message was encoded in so many bytes, in another way than gRPC does it:
// these count from now on, whether there is room or not, and the message is let go.
func (b *bounded) Becomes(size int) {
	b.claim.resize(int64(size))
	b.Message = nil
}

// Unbound takes an answer that is bounded apart, for who encodes it in another way than gRPC does:
// the message, and the claim to be given back when its encoding was sent; nil: it is not bounded.
func Unbound(answer any) (message any, held *Claim) {
	b, ok := answer.(*bounded)
	if !ok {
		return answer, nil
	}
	b.claim.encoded.Store(true)
	return b.Message, b.claim
}

// Sent gives the bytes back.
func (b *bounded) Sent() { b.claim.Give() }

// Claim gives the bytes back once: when they were sent, and at the latest when nothing refers to
// the message and its encoding any more. gRPC does not tell of what it drops with a connection.
type Claim struct {
	bytes *quota.Bytes
	of    string
	size  atomic.Int64
	given atomic.Bool
	// largest is not nil for an answer that counts as less than it is. It becomes false when the bytes
	// are given back.
	largest *atomic.Bool
	// encoded: the encoding has taken the claim over.
	encoded atomic.Bool
}

// Give gives the bytes back; nil holds none.
func (c *Claim) Give() {
	if c != nil && !c.given.Swap(true) {
		c.bytes.Give(c.of, c.size.Load())
		if c.largest != nil {
			c.largest.Store(false)
		}
	}
}

// resize is for the owner of the message, before the bytes are given back.
func (c *Claim) resize(size int64) {
	if c.largest != nil {
		size = min(size, c.size.Load())
	}
	if more := size - c.size.Swap(size); more > 0 {
		c.bytes.Force(c.of, more)
	} else {
		c.bytes.Give(c.of, -more)
	}
}

func (c *Claim) giveUnlessEncoded() {
	if !c.encoded.Load() {
		c.Give()
	}
}

func newBounded(bytes *quota.Bytes, of string, m proto.Message, size int) *bounded {
	b := &bounded{m, &Claim{bytes: bytes, of: of}}
	b.claim.size.Store(int64(size))
	runtime.AddCleanup(b, (*Claim).giveUnlessEncoded, b.claim)
	return b
}

// Encode implements wire.Encoder. The claim is given back with the encoding.
func (b *bounded) Encode() (mem.BufferSlice, error) {
	encoded, err := proto.Marshal(b.Message)
	if err != nil {
		b.claim.Give()
		return nil, fmt.Errorf("marshal %T: %w", b.Message, err)
	}
	b.claim.encoded.Store(true)
	back := &claimBack{b.claim}
	runtime.AddCleanup(back, (*Claim).Give, b.claim)
	runtime.KeepAlive(b)
	return mem.BufferSlice{mem.NewBuffer(&encoded, back)}, nil
}

// claimBack is the pool of one buffer: gRPC puts it back when it has sent it.
type claimBack struct{ claim *Claim }

// Get implements mem.BufferPool. It is asked for no buffer.
func (*claimBack) Get(length int) *[]byte { return wire.Buffers.Get(length) }

// Put implements mem.BufferPool.
func (c *claimBack) Put(*[]byte) { c.claim.Give() }
